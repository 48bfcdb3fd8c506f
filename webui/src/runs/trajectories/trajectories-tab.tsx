import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { useSearchParams } from "react-router";

import * as queries from "../../api/queries.ts";
import type { Run } from "../../api/schema.d.ts";
import { numberAt } from "../../common/json.ts";
import { Empty, ProblemNotice, Waiting } from "../../common/notices.tsx";
import { TrajectoryFilters } from "./filters.tsx";
import { Reader } from "./reader.tsx";
import classes from "./trajectories-tab.module.css";
import { trajectoryQuery } from "./trajectory-filter.ts";
import { TrajectoryList } from "./trajectory-list.tsx";

/** Sampled trajectories: the list with its filters at the left, one of them with its whole group at the right. */
export function TrajectoriesTab({ run }: { run: Run }) {
  const [search, setSearch] = useSearchParams();
  const filter = useMemo(() => trajectoryQuery(search), [search]);
  const listKey = JSON.stringify(filter);
  const query = useInfiniteQuery(queries.runTrajectories(run.id, filter));
  const [isAtTop, setAtTop] = useState(true);
  const samples = useMemo(() => query.data?.pages.flatMap((page) => page.data) ?? [], [query.data]);
  // Without one in the URL the newest of the moment is shown, and stays: a live run must not turn the page.
  const [first, setFirst] = useState<{ listKey: string; id: number } | null>(null);
  if (samples[0] !== undefined && first?.listKey !== listKey) setFirst({ listKey, id: samples[0].id });
  const shown = search.get("trajectory") ?? (first?.listKey === listKey ? String(first.id) : null);
  const open = (id: number) => setSearch((old) => { old.set("trajectory", String(id)); return old; }, { replace: true });

  // New trajectories appear while the top of the list is in view. Below it the rows stay where they are.
  const hasNew = query.isStale && query.data !== undefined && !query.isFetching;
  const { refetch } = query;
  const follows = isAtTop && (query.data?.pages.length ?? 0) <= 1;
  useEffect(() => {
    if (hasNew && follows) void refetch();
  }, [hasNew, follows, refetch]);

  const isFiltered = listKey !== "{}";
  return (
    <div className={classes.browser}>
      <aside className={classes.left} aria-label="Sampled trajectories">
        <TrajectoryFilters search={search} onChange={(changed) => setSearch(changed, { replace: true })} />
        <ProblemNotice error={query.error} retry={() => void query.refetch()} />
        {query.isPending ? <Waiting /> : query.data === undefined ? null : samples.length === 0 ? (
          isFiltered
            ? <Empty title="No matching trajectories">{filter.group === undefined ? "No sampled trajectory matches all filters." : "No trajectory of this group was sampled. It may not be trained yet."}</Empty>
            : <Empty title="No trajectories yet">From each train step, all trajectories of two groups appear here, and those with the highest and lowest reward, the longest, and the one with the widest version span.</Empty>
        ) : (
          <TrajectoryList
            key={listKey} query={query} samples={samples} shown={shown} onOpen={open} onTop={setAtTop}
            notice={hasNew && !follows ? () => void query.refetch() : null}
          />
        )}
      </aside>
      <div className={classes.right}>
        {shown === null ? null : <Reader run={run} id={shown} groupSize={numberAt(run.spec, "rollout", "group_size")} onOpen={open} />}
      </div>
    </div>
  );
}
