const ENDED = new Set(["SUCCEEDED", "STOPPED", "FAILED"]);

export function hasEnded(status: string): boolean {
  return ENDED.has(status);
}

/** Statuses in which a stop is not possible or already under way. */
export function canStop(status: string): boolean {
  return !hasEnded(status) && status !== "STOPPING";
}
