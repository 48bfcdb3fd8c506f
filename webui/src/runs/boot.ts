import type { BootStage, RunDetail } from "../api/schema.d.ts";
import { hasEnded } from "./ended.ts";

type Booting = Pick<RunDetail, "boot" | "status">;

/** Whether the run's newest attempt is still coming up: the page asks again, and shows the checklist. */
export function isBooting({ boot, status }: Booting): boolean {
  return boot !== null && !boot.done && !hasEnded(status) && status !== "PAUSED";
}

/** The checklist also stays on the page of a run that failed before its boot was done. */
export function showsBoot({ boot, status }: Booting): boolean {
  return isBooting({ boot, status }) || (boot !== null && boot.stages.some((stage) => stage.state === "failed"));
}

/** Whether the head of the page shows what the jobs prepare: not while they load, which the checklist shows. */
export function showsPhase({ progress, status }: Pick<RunDetail, "progress" | "status">): boolean {
  return progress !== null && progress.phase !== "train" && progress.phase !== "boot" && !hasEnded(status);
}

/** How long a stage took, or has taken so far; null before it begins and where it was cut off. */
export function secondsOf(stage: Pick<BootStage, "state" | "started_at" | "ended_at">, now: number): number | null {
  if (stage.started_at === null) return null;
  const end = stage.ended_at !== null ? Date.parse(stage.ended_at) : stage.state === "active" ? now : null;
  return end === null ? null : Math.max(0, (end - Date.parse(stage.started_at)) / 1000);
}
