import type { Run } from "../api/schema.d.ts";
import { StatusBadge } from "../common/status.tsx";
import { isPausedByError } from "./run-reason.ts";

/** The status of a run with its conditions. A pause because of an error is an error, not a rest. */
export function RunStatus({ run, size = "sm" }: { run: Pick<Run, "status" | "conditions">; size?: "sm" | "md" }) {
  const byError = isPausedByError(run);
  return (
    <>
      <StatusBadge status={byError ? "PAUSED_BY_ERROR" : run.status} size={size} />
      {run.conditions.filter((condition) => !byError || condition !== "NEEDS_ATTENTION").map((condition) => <StatusBadge key={condition} status={condition} />)}
    </>
  );
}
