import type { BootStage, RunDetail } from "../api/schema.d.ts";
import { hasEnded } from "./ended.ts";

type Booting = Pick<RunDetail, "boot" | "status">;

/** Whether the newest attempt is still booting. The page then polls and shows the checklist. */
export function isBooting({ boot, status }: Booting): boolean {
  return boot !== null && !boot.done && !hasEnded(status) && status !== "PAUSED";
}

/** Whether to show the checklist: during a boot, and after a failed one. */
export function showsBoot({ boot, status }: Booting): boolean {
  return isBooting({ boot, status }) || (boot !== null && boot.stages.some((stage) => stage.state === "failed"));
}

/** Whether the header shows what the jobs prepare. During a boot the checklist shows it. */
export function showsPhase({ progress, status }: Pick<RunDetail, "progress" | "status">): boolean {
  return progress !== null && progress.phase !== "train" && progress.phase !== "boot" && !hasEnded(status);
}

/** Duration of a stage, so far if it is active. Null before it starts and for an interrupted stage. */
export function secondsOf(stage: Pick<BootStage, "state" | "started_at" | "ended_at">, now: number): number | null {
  if (stage.started_at === null) return null;
  const end = stage.ended_at !== null ? Date.parse(stage.ended_at) : stage.state === "active" ? now : null;
  return end === null ? null : Math.max(0, (end - Date.parse(stage.started_at)) / 1000);
}
