import { useQueryClient, type InfiniteData } from "@tanstack/react-query";

import type { Run, RunDetail, RunPage } from "../api/schema.d.ts";
import { useTopic } from "../stream/stream.ts";

type Changed = Partial<Run> & { id: string };
type Lists = InfiniteData<RunPage>;

/** Replaces the run where a list shows it; says whether the list did. */
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

/** Keeps every list of runs up to date, on whatever page the reader is; also what keeps the connection open. */
export function useRunsTopic(): void {
  const client = useQueryClient();
  const readAgain = () => void client.invalidateQueries({ queryKey: ["runs"] });
  useTopic("runs", (frame) => {
    const changed = frame.data as Partial<Run>;
    if (typeof changed.id !== "string") return readAgain();
    let known = false;
    client.setQueriesData<Lists>({ queryKey: ["runs"] }, (old) => {
      if (old === undefined) return old;
      const { list, found } = mergeInto(old, changed as Changed);
      known ||= found;
      return list;
    });
    client.setQueryData<RunDetail>(["run", changed.id], (old) => (old === undefined ? old : { ...old, ...changed }));
    if (frame.type === "status" || !known) readAgain(); // a filter may let it in or out now
  }, readAgain);
}
