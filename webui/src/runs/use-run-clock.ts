import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import * as queries from "../api/queries.ts";
import type { Job, Run } from "../api/schema.d.ts";
import { gpuHoursAt, slotUses } from "./gpu-hours.ts";
import { unixSeconds } from "./metrics-store.ts";
import type { RunClock } from "./run-axis.ts";

type Times = Pick<Run, "started_at" | "created_at" | "ended_at">;

/** When the run began, and the slots that its jobs have held. A run that has ended holds none, whatever was known of its jobs. */
export function runClock(run: Times, jobs: readonly Job[]): RunClock {
  const uses = slotUses(jobs);
  const end = run.ended_at === null ? Infinity : unixSeconds(run.ended_at);
  return { origin: unixSeconds(run.started_at ?? run.created_at), gpuHoursAt: (at) => gpuHoursAt(uses, Math.min(at, end)) };
}

/** The clock of one run. Its jobs are fetched only where GPU-hours are shown. */
export function useRunClock({ id, started_at, created_at, ended_at }: Run, needsJobs: boolean): RunClock {
  const jobs = useQuery({ ...queries.runJobs(id), enabled: needsJobs }).data?.data;
  return useMemo(() => runClock({ started_at, created_at, ended_at }, jobs ?? []), [started_at, created_at, ended_at, jobs]);
}
