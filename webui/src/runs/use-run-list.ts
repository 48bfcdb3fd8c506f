import { keepPreviousData, useInfiniteQuery, useQueries } from "@tanstack/react-query";
import { useMemo } from "react";

import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import { hasEnded } from "./ended.ts";
import type { RunListQuery } from "./run-list-view.ts";
import type { Curve } from "./sparkline.ts";

/** A list with more pages than this is not fetched again by itself, because that would repeat the request of each page. */
export const MAX_REFETCHED_PAGES = 3;
const STALE_MILLISECONDS = 5_000;
const REFETCH_MILLISECONDS = 60_000;
const CURVES_REFETCH_MILLISECONDS = 30_000;

/** The runs of a filter, page by page. The rows of the filter before stay visible until the first page is there. */
export function useRunList(filter: RunListQuery) {
  const isLong = ({ state: { data } }: { state: { data?: { pages: unknown[] } } }) => (data?.pages.length ?? 0) > MAX_REFETCHED_PAGES;
  return useInfiniteQuery({
    ...queries.runs(filter),
    placeholderData: keepPreviousData,
    staleTime: (query) => (isLong(query) ? Infinity : STALE_MILLISECONDS), // a long list is stale once it was invalidated
    refetchInterval: (query) => (isLong(query) ? false : REFETCH_MILLISECONDS),
  });
}

/** Reward curves by run id, of the pages that the visible rows lie in. */
export function useCurves(pages: Run[][], visible: { first: number; last: number }, enabled: boolean): Map<string, Curve> {
  const starts = useMemo(() => pages.map((_, index) => pages.slice(0, index).reduce((sum, page) => sum + page.length, 0)), [pages]);
  return useQueries({
    queries: pages.map((page, index) => ({
      ...queries.sparklines(page.map((run) => run.id)),
      enabled: enabled && page.length > 0 && starts[index]! <= visible.last && starts[index]! + page.length > visible.first,
      refetchInterval: page.every((run) => hasEnded(run.status)) ? false as const : CURVES_REFETCH_MILLISECONDS,
    })),
    combine: combineCurves,
  });
}

function combineCurves(results: { data?: (Curve & { run_id: string })[] }[]): Map<string, Curve> {
  return new Map(results.flatMap(({ data }) => (data ?? []).map((curve) => [curve.run_id, curve] as const)));
}
