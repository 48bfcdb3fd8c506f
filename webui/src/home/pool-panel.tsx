import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";
import { grouped } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { useTopic } from "../stream/stream.ts";
import classes from "./home-page.module.css";
import { poolSummary, quotaLines } from "./pool-summary.ts";

/** Busy and free slots, the queue, and the quotas that hold for the project. */
export function PoolPanel() {
  const { data: pool, error, refetch } = useQuery(queries.pool());
  useTopic("pool", () => void refetch(), () => void refetch());
  const title = <Link to="/pool">{pool === undefined || pool.pools.length < 2 ? "Pool" : `Pool ${pool.name}`}</Link>;
  if (pool === undefined) return <Panel title={title}>{error === null ? <Waiting /> : <ProblemNotice error={error} retry={() => void refetch()} />}</Panel>;
  const { total, busy, free, unhealthy, readyNodes } = poolSummary(pool);
  const states = [["busy", busy], ["free", free], ["unhealthy", unhealthy]] as const;
  return (
    <Panel title={title} aside={`${grouped(readyNodes)} of ${grouped(pool.nodes.length)} node${pool.nodes.length === 1 ? "" : "s"} ready`}>
      {total === 0 ? <Empty title="No slots yet">A node adds its GPUs as slots when it joins. <Link to="/pool">Add a node</Link>.</Empty> : (
        <div data-testid="pool">
          <div className={classes.bar} aria-hidden>
            {states.filter(([, count]) => count > 0).map(([state, count]) => <span key={state} data-state={state} style={{ flexGrow: count }} />)}
          </div>
          <ul className={`${classes.lines} tabular`}>
            <li><strong>{grouped(busy)}</strong> busy, <strong>{grouped(free)}</strong> free{unhealthy > 0 && <>, <strong>{grouped(unhealthy)}</strong> unhealthy</>}, of {grouped(total)} slot{total === 1 ? "" : "s"}</li>
            <li>{pool.queue.length === 0 ? "The queue is empty." : <><strong>{grouped(pool.queue.length)}</strong> in the queue</>}</li>
            {quotaLines(pool).map((line) => <li key={line}>{line}</li>)}
          </ul>
        </div>
      )}
    </Panel>
  );
}
