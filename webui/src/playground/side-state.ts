import type { Playground, PlaygroundSide } from "../api/schema.d.ts";
import { duration } from "../common/format.ts";

const ENDED: ReadonlySet<string> = new Set(["SUCCEEDED", "STOPPED", "FAILED"]);

export const hasSideEnded = ({ status }: Pick<PlaygroundSide, "status">): boolean => ENDED.has(status);

/** What a side is doing, and what the user can do about it. */
export function sideNotice(side: Pick<PlaygroundSide, "status" | "ready" | "pending_reason" | "reason" | "reason_message">): { tone: "wait" | "end"; title: string; text: string } | null {
  if (side.ready && !hasSideEnded(side)) return null;
  if (!hasSideEnded(side)) {
    if (side.status === "QUEUED") return { tone: "wait", title: "Waits for a slot", text: side.pending_reason || "It starts when a slot is idle: every run comes first." };
    return { tone: "wait", title: "Starts", text: side.pending_reason || "The engine loads the model." };
  }
  if (side.reason === "completed") return { tone: "end", title: "Closed because it was idle", text: "Nobody sent a message for the idle timeout, so the slot was released. Open it again to continue." };
  if (side.reason === "preempted") return { tone: "end", title: "Ended for a run", text: "A run in the queue needed the slot, or the node was drained. Open it again when a slot is idle." };
  if (side.reason === "stopped_by_user" || side.reason === "canceled_by_user") return { tone: "end", title: "Stopped", text: "The slot is released." };
  return { tone: "end", title: "Failed", text: side.reason_message || "The engine did not start. Its run has the log." };
}

/** Until when the slot stays without a message. */
export function releaseText(secondsLeft: number | null): string {
  if (secondsLeft === null) return "";
  return secondsLeft <= 0 ? "The slot is being released" : `Released after ${duration(Math.round(secondsLeft))} without a message`;
}

/** The page that opens the same models again. */
export function againPath(playground: Playground): string {
  const models = playground.sides.map(({ model }) => `${model.kind}=${encodeURIComponent(model.id)}`);
  return `/playground?${models.join("&")}`;
}
