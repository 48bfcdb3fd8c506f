import type { Job, LogFile, Run } from "../api/schema.d.ts";
import { isPausedByError } from "./run-reason.ts";

/** Whether the run failed, or was paused because of an error: somebody has to act. */
export function isFailure(run: Pick<Run, "status" | "conditions">): boolean {
  return run.status === "FAILED" || isPausedByError(run);
}

/** Whose fault an end was, in words, by the server's code. */
const FAULTS: Record<string, string> = {
  user: "Code or settings of the run",
  config: "The spec",
  data: "The dataset or the model's files",
  reward: "The reward function",
  infra: "A node or its network. It uses up no attempt of the run.",
  platform: "Oolong itself. Please report it with the log.",
};

export function faultText(fault: string): string | null {
  return FAULTS[fault] ?? null;
}

/** The job that a reason blames. */
const BLAMED_JOBS: Record<string, string> = {
  trainer_crashed: "trainer",
  nonfinite_loss: "trainer",
  controller_crashed: "controller",
  rollout_crash_loop: "rollout",
  workflow_errors: "rollout",
  reward_service_crash_loop: "reward",
  reward_errors: "reward",
  reward_error_rate: "reward",
};

/** The log that explains the failure: of the job that the reason blames, else of one that exited with an error. */
export function logOfFailure(run: Pick<Run, "reason" | "fault">, files: LogFile[], jobs: Pick<Job, "id" | "exit_code">[]): LogFile | undefined {
  const newest = Math.max(...files.map((file) => file.attempt));
  const recent = files.filter((file) => file.attempt === newest && file.bytes > 0);
  const crashed = new Set(jobs.filter((job) => job.exit_code !== null && job.exit_code !== 0).map((job) => job.id));
  const blamed = BLAMED_JOBS[run.reason] ?? (run.fault === "reward" ? "reward" : undefined);
  const isBlamed = (file: LogFile) => blamed !== undefined && file.name.startsWith(blamed);
  return recent.findLast((file) => isBlamed(file) && crashed.has(file.job))
    ?? recent.findLast(isBlamed)
    ?? recent.findLast((file) => crashed.has(file.job))
    ?? recent.findLast((file) => file.name === "trainer")
    ?? recent.at(-1);
}

/** The last traceback of Python in a text: from its head to the line with the exception. Null without one. */
export function lastTraceback(text: string): string | null {
  const lines = text.split("\n");
  const start = lines.findLastIndex((line) => line.trimEnd().endsWith("Traceback (most recent call last):"));
  if (start < 0) return null;
  const length = lines.slice(start + 1).findIndex((line) => line !== "" && !/^\s/.test(line));
  return lines.slice(start, length < 0 ? undefined : start + length + 2).join("\n").trimEnd();
}

export function lastLines(text: string, count: number): string[] {
  return text.split("\n").filter((line) => line.trim() !== "").slice(-count);
}
