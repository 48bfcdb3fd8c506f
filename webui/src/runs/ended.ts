const ENDED = new Set(["SUCCEEDED", "STOPPED", "FAILED"]);

export function hasEnded(status: string): boolean {
  return ENDED.has(status);
}

/** Statuses of a run that has, or waits for, slots which a pause would give back. */
export function canPause(status: string): boolean {
  return ["QUEUED", "STARTING", "RUNNING", "RECOVERING"].includes(status);
}

export function canRetry(status: string): boolean {
  return status === "FAILED" || status === "STOPPED";
}

/** Statuses in which a stop is not possible or already under way. */
export function canStop(status: string): boolean {
  return !hasEnded(status) && status !== "STOPPING";
}
