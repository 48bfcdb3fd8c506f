const ENDED = new Set(["SUCCEEDED", "STOPPED", "FAILED"]);

export function hasEnded(status: string): boolean {
  return ENDED.has(status);
}

/** Whether the run holds or waits for slots, so that a pause would release them. */
export function canPause(status: string): boolean {
  return ["QUEUED", "STARTING", "RUNNING", "RECOVERING"].includes(status);
}

export function canRetry(status: string): boolean {
  return status === "FAILED" || status === "STOPPED";
}

/** Whether the run is active and not stopping already. */
export function canStop(status: string): boolean {
  return !hasEnded(status) && status !== "STOPPING";
}
