import { useQueryClient, type InfiniteData, type Query } from "@tanstack/react-query";

import type { Run, RunDetail, RunPage } from "../api/schema.d.ts";
import { useTopic } from "../stream/stream.ts";
import { MAX_REFETCHED_PAGES } from "./use-run-list.ts";

type Changed = Partial<Run> & { id: string };
type Lists = InfiniteData<RunPage>;

/** Update the run in a list. Returns the new list and whether it contains the run. */
function mergeInto(list: Lists, changed: Changed): { list: Lists; found: boolean } {
  let found = false;
  const pages = list.pages.map((page) => ({
    ...page,
    data: page.data.map((run) => {
      if (run.id !== changed.id) return run;
      found = true;
      return { ...run, ...changed };
    }),
  }));
  return { list: { ...list, pages }, found };
}

/** Keep all lists of runs up to date on every page. This subscription also keeps the connection open. */
export function useRunsTopic(): void {
  const client = useQueryClient();
  // A long list only becomes stale: fetching it again is a request per page, so its reader decides when.
  const refetch = () => {
    const isLong = (query: Query) => ((query.state.data as Lists | undefined)?.pages.length ?? 0) > MAX_REFETCHED_PAGES;
    void client.invalidateQueries({ queryKey: ["runs"], predicate: (query) => !isLong(query) });
    void client.invalidateQueries({ queryKey: ["runs"], predicate: isLong, refetchType: "none" });
  };
  useTopic("runs", (frame) => {
    const changed = frame.data as Partial<Run>;
    if (typeof changed.id !== "string") return refetch();
    let isListed = false;
    client.setQueriesData<Lists>({ queryKey: ["runs"] }, (old) => {
      if (old === undefined) return old;
      const { list, found } = mergeInto(old, changed as Changed);
      isListed ||= found;
      return list;
    });
    client.setQueryData<RunDetail>(["run", changed.id], (old) => (old === undefined ? old : { ...old, ...changed }));
    if (frame.type === "status" || !isListed) refetch(); // the run may match other filters now
  }, refetch);
}
