import { useQueryClient, type InfiniteData, type Query } from "@tanstack/react-query";

import type { Run, RunDetail, RunPage } from "../api/schema.d.ts";
import { useTopic } from "../stream/stream.ts";
import { MAX_REFETCHED_PAGES } from "./use-run-list.ts";

type Changed = Partial<Run> & { id: string };
type Lists = InfiniteData<RunPage>;

function mergeInto(list: Lists, changed: Changed): Lists {
  const pages = list.pages.map((page) => ({ ...page, data: page.data.map((run) => (run.id === changed.id ? { ...run, ...changed } : run)) }));
  return { ...list, pages };
}

/** Keep all lists of runs up to date on every page. This subscription also keeps the connection open. */
export function useRunsTopic(): void {
  const client = useQueryClient();
  // A long list only becomes stale: fetching it again is a request per page, so its reader decides when.
  const refetch = () => {
    const isLong = (query: Query) => ((query.state.data as Lists | undefined)?.pages.length ?? 0) > MAX_REFETCHED_PAGES;
    // Without cancelRefetch: frames that come faster than pages would cancel every page that is being loaded.
    void client.invalidateQueries({ queryKey: ["runs"], predicate: (query) => !isLong(query) }, { cancelRefetch: false });
    void client.invalidateQueries({ queryKey: ["runs"], predicate: isLong, refetchType: "none" });
  };
  useTopic("runs", (frame) => {
    const changed = frame.data as Partial<Run>;
    if (typeof changed.id !== "string") return refetch();
    client.setQueriesData<Lists>({ queryKey: ["runs"] }, (old) => (old === undefined ? old : mergeInto(old, changed as Changed)));
    client.setQueryData<RunDetail>(["run", changed.id], (old) => (old === undefined ? old : { ...old, ...changed }));
    if (frame.type === "status") refetch(); // the run may be new, or match other filters now
  }, refetch);
}
