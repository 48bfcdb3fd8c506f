import type { Run } from "../api/schema.d.ts";

/** Seconds since the start of a run, without pauses. Null before the start. */
export function elapsedSeconds(run: Pick<Run, "status" | "status_at" | "started_at" | "ended_at" | "paused_seconds">, now: number): number | null {
  if (run.started_at === null) return null;
  const end = run.ended_at !== null ? Date.parse(run.ended_at) : run.status === "PAUSED" ? Date.parse(run.status_at) : now;
  return Math.max(0, (end - Date.parse(run.started_at)) / 1000 - run.paused_seconds);
}
