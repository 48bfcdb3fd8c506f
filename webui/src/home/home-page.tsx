import { useQueries, useQuery } from "@tanstack/react-query";

import * as queries from "../api/queries.ts";
import type { Alert, Me, Run } from "../api/schema.d.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader } from "../common/panel.tsx";
import { useNow } from "../common/use-now.ts";
import { hasEnded } from "../runs/ended.ts";
import { ATTENTION } from "../runs/run-list-view.ts";
import { attentionItems } from "./attention.ts";
import { AttentionPanel } from "./attention-panel.tsx";
import { FirstSteps } from "./first-steps.tsx";
import classes from "./home-page.module.css";
import { PoolPanel } from "./pool-panel.tsx";
import { QuickStart } from "./quick-start.tsx";
import { RunningPanel } from "./running-panel.tsx";
import { useRuns, WORKING } from "./use-runs.ts";

/** Rows of each list, so that the requests of the page stay few and small in a project of any size. */
const ROWS = 6;
const ALERTS_REFETCH_MILLISECONDS = 30_000;

/** The project at a glance: what runs, what needs somebody, the pool, and how to begin. */
export function HomePage() {
  const { data: me } = useQuery(queries.me);
  const newest = useRuns({}, 1);
  if (me === undefined || (newest.runs === undefined && newest.error === null)) return <Waiting />;
  if (newest.runs === undefined) return <ProblemNotice error={newest.error} retry={newest.refetch} />;
  return newest.runs[0] === undefined ? <EmptyProject me={me} /> : <Project me={me} newestRun={newest.runs[0]} />;
}

function EmptyProject({ me }: { me: Me }) {
  return (
    <>
      <PageHeader title="Home">{me.team.name} / {me.project.name} has no runs yet. A run trains a base model on a dataset, with a reward.</PageHeader>
      <div className={classes.page}>
        <FirstSteps me={me} />
        <div className={classes.column}><PoolPanel /></div>
      </div>
    </>
  );
}

function Project({ me, newestRun }: { me: Me; newestRun: Run }) {
  const now = useNow(30_000);
  const working = useRuns({ status: WORKING }, ROWS);
  const flagged = useRuns({ condition: ATTENTION }, ROWS);
  const failed = useRuns({ status: "FAILED", sort: "-ended" }, ROWS);
  const waiting = useRuns({ status: "QUEUED" }, ROWS);
  const lists = [working, flagged, failed, waiting];
  const alerts = useAlerts([...(flagged.runs ?? []), ...(working.runs ?? [])]);
  const failure = lists.find((list) => list.error !== null)?.error;
  const isLoaded = lists.every((list) => list.runs !== undefined);
  const items = attentionItems({ flagged: flagged.runs ?? [], failed: failed.runs ?? [], running: working.runs ?? [], waiting: waiting.runs ?? [], alerts }, now);
  return (
    <>
      <PageHeader title="Home">{me.team.name} / {me.project.name}</PageHeader>
      <ProblemNotice error={failure} retry={() => lists.forEach((list) => list.refetch())} />
      <div className={classes.page}>
        <div className={classes.column}>
          {working.runs !== undefined && <RunningPanel runs={working.runs} hasMore={working.hasMore} />}
          {isLoaded ? <AttentionPanel items={items} hasMore={[flagged, failed, waiting].some((list) => list.hasMore)} /> : failure === undefined && <Waiting />}
        </div>
        <div className={classes.column}>
          <PoolPanel />
          <QuickStart me={me} newestRun={newestRun} />
        </div>
      </div>
    </>
  );
}

/** The open alerts of the first active runs of a list, by run id. */
function useAlerts(runs: Run[]): Map<string, Alert[]> {
  const ids = [...new Set(runs.filter((run) => !hasEnded(run.status)).map((run) => run.id))].slice(0, ROWS);
  return useQueries({
    queries: ids.map((id) => ({ ...queries.runAlerts(id), refetchInterval: ALERTS_REFETCH_MILLISECONDS })),
    combine: (results) => new Map(results.map(({ data }, index) => [ids[index]!, data?.data ?? []] as const)),
  });
}
