import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import { ago, moment, number } from "../common/format.ts";
import { numberAt } from "../common/json.ts";
import { Empty } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { useNow } from "../common/use-now.ts";
import { RewardCurve } from "../runs/reward-curve.tsx";
import { elapsedText, RunProgress } from "../runs/run-cells.tsx";
import { RunStatus } from "../runs/run-status.tsx";
import type { Curve } from "../runs/sparkline.ts";
import classes from "./home-page.module.css";
import { useRuns, WORKING } from "./use-runs.ts";

const ENDED_ROWS = 3;
const CURVES_REFETCH_MILLISECONDS = 30_000;

/** The active runs with their progress and headline figures, or the newest results if nothing runs. */
export function RunningPanel({ runs, hasMore }: { runs: Run[]; hasMore: boolean }) {
  const now = useNow(1_000);
  const curves = useQuery({ ...queries.sparklines(runs.map((run) => run.id)), enabled: runs.length > 0, refetchInterval: CURVES_REFETCH_MILLISECONDS }).data ?? [];
  if (runs.length === 0) return <NothingRuns now={now} />;
  return (
    <Panel title="Running now" flush>
      <ul className={classes.list} data-testid="running">
        {runs.map((run) => <RunItem key={run.id} run={run} now={now} curve={curves.find((curve) => curve.run_id === run.id)} />)}
      </ul>
      {hasMore && <div className={classes.more}><Link to={`/runs?status=${WORKING}`}>All active runs</Link></div>}
    </Panel>
  );
}

function RunItem({ run, now, curve }: { run: Run; now: number; curve: Curve | undefined }) {
  const bound = run.live.max_staleness ?? numberAt(run.spec, "staleness", "max");
  return (
    <li className={classes.run} data-run={run.id}>
      <div className={classes.head}><Link className={classes.name} to={`/runs/${run.id}`} title={run.name}>{run.name}</Link> <RunStatus run={run} /></div>
      <RewardCurve curve={curve} />
      <div className={classes.wide}><RunProgress run={run} /></div>
      <dl className={`${classes.figures} ${classes.wide} tabular`}>
        {run.kind === "rl" && <Figure label="Reward" help="Mean reward of the newest train step">{number(run.reward_mean)}</Figure>}
        {run.kind === "rl" && <Figure label="Staleness" help="Mean staleness of the newest train step, of the bound η">{number(run.staleness_mean, 2)}{bound !== null && ` / ${bound}`}</Figure>}
        {run.kind === "rl" && <Figure label="Policy version" help="Newest policy version">{run.policy_version}</Figure>}
        <Figure label="Elapsed" help="Time since the start, without pauses">{elapsedText(run, now)}</Figure>
        <Figure label="Dataset" help="Dataset version that it trains on">{run.dataset.ref}</Figure>
      </dl>
    </li>
  );
}

function Figure({ label, help, children }: { label: string; help: string; children: React.ReactNode }) {
  return <div title={help}><dt>{label}</dt><dd>{children}</dd></div>;
}

function NothingRuns({ now }: { now: number }) {
  const ended = useRuns({ status: "SUCCEEDED,STOPPED", sort: "-ended" }, ENDED_ROWS).runs ?? [];
  return (
    <Panel title={ended.length === 0 ? "Running now" : "Nothing runs now. The newest results:"} flush>
      {ended.length === 0 ? <Empty title="Nothing runs now" action={<Button component={Link} to="/runs" variant="default">Go to runs</Button>} /> : (
        <ul className={classes.list} data-testid="ended">
          {ended.map((run) => (
            <li key={run.id} className={classes.head} data-run={run.id}>
              <Link className={classes.name} to={`/runs/${run.id}?tab=results`} title={run.name}>{run.name}</Link> <RunStatus run={run} />
              <span className={`${classes.since} tabular`} title={moment(run.ended_at)}>
                {run.kind === "rl" && `reward ${number(run.reward_mean)} · `}{run.train_step} steps · {ago(run.ended_at, now)}
              </span>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}
