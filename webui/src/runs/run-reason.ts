import type { Run } from "../api/schema.d.ts";
import { words } from "../common/format.ts";

export type Reason = { text: string; tone: "bad" | "warn" | "neutral" };

type Explained = Pick<Run, "status" | "conditions" | "reason" | "reason_message" | "pending_reason" | "queue_position" | "progress">;

/** Whether the run is paused because of an error, so that somebody has to act. */
export function isPausedByError(run: Pick<Run, "status" | "conditions">): boolean {
  return run.status === "PAUSED" && run.conditions.includes("NEEDS_ATTENTION");
}

const CONDITIONS: Record<string, Reason> = {
  UNRESPONSIVE: { text: "Its node does not respond", tone: "warn" },
  DEGRADED: { text: "A critical alert is open", tone: "bad" },
  GAP: { text: "Its last telemetry did not arrive", tone: "warn" },
  NODE_DRAINING: { text: "Its node is drained; it may stay until the deadline", tone: "warn" },
  ENGINES_UNRESPONSIVE: { text: "Another node, with some of its engines, does not respond; other engines continue", tone: "warn" },
  ENGINES_WAITING: { text: "It waits for more engines than are free", tone: "neutral" },
};

/** Why a run waits, needs attention or failed, in one line. Null for a run that needs no explanation. */
export function reasonOf(run: Explained): Reason | null {
  const cause = run.reason_message || words(run.reason);
  if (run.status === "FAILED" || isPausedByError(run)) return { text: cause || "No cause was reported", tone: "bad" };
  const pausesByError = run.status === "PAUSING" && run.reason !== "paused_by_user";
  if ((run.status === "RECOVERING" || pausesByError) && cause !== "") return { text: cause, tone: "warn" };
  if (run.status === "PAUSED" && run.reason === "budget_exhausted") return { text: cause, tone: "warn" };
  const condition = Object.keys(CONDITIONS).find((name) => run.conditions.includes(name));
  if (condition !== undefined) return CONDITIONS[condition]!;
  if (run.status === "QUEUED" && run.pending_reason !== "") {
    return { text: run.queue_position === null ? run.pending_reason : `#${run.queue_position} in the queue: ${run.pending_reason}`, tone: "neutral" };
  }
  if (run.status === "STARTING" && run.progress !== null && run.progress.message !== "") return { text: run.progress.message, tone: "neutral" };
  return null;
}
