import { useInfiniteQuery } from "@tanstack/react-query";

import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import type { RunListQuery } from "../runs/run-list-view.ts";

const REFETCH_MILLISECONDS = 60_000;

/** Statuses of runs that hold slots or are about to. */
export const WORKING = "STARTING,RUNNING,RECOVERING,PAUSING,STOPPING,FINALIZING";

type List = { runs: Run[] | undefined; hasMore: boolean; error: Error | null; refetch: () => void };

/** The first runs of a filter. The stream keeps them up to date. */
export function useRuns(filter: RunListQuery, limit: number): List {
  const query = useInfiniteQuery({ ...queries.runs(filter, limit), refetchInterval: REFETCH_MILLISECONDS });
  return { runs: query.data?.pages[0]?.data, hasMore: query.hasNextPage, error: query.data === undefined ? query.error : null, refetch: () => void query.refetch() };
}
