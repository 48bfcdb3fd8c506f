import { timeOfDay } from "../common/format.ts";
import { useNow } from "../common/use-now.ts";
import { useStreamState } from "../stream/stream.ts";
import classes from "./connection-badge.module.css";

/** Shows whether the page is up to date. */
export function ConnectionBadge() {
  const { status, staleSince, frames } = useStreamState();
  const now = useNow(5_000);
  const isStale = staleSince !== null && now - staleSince > 10_000;
  const label = status === "live" && staleSince === null ? "Live"
    : status === "idle" ? "Not connected"
    : status === "connecting" ? "Connecting"
    : isStale ? `Stale since ${timeOfDay(staleSince)}` : "Reconnecting";
  return (
    <div className={classes.badge} data-status={isStale ? "stale" : status} data-frames={frames} role="status" data-testid="connection">
      <span className={classes.dot} aria-hidden /> {label}
    </div>
  );
}
