import "@mantine/core/styles/Tabs.css";
import { Button, Group, Progress, Tabs } from "@mantine/core";
import { IconCopy } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { Link, useParams, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { Run, RunDetail } from "../api/schema.d.ts";
import { CopyId } from "../common/copy-id.tsx";
import { ago, clock, DASH, moment, number, percent, words } from "../common/format.ts";
import { numberAt } from "../common/json.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { useNow } from "../common/use-now.ts";
import { usePageTitle } from "../common/use-page-title.ts";
import { Alerts } from "./alerts.tsx";
import { isBooting, showsPhase } from "./boot.ts";
import { ChangeButton } from "./change-button.tsx";
import { CheckpointsTab } from "./checkpoints-tab.tsx";
import { elapsedSeconds } from "./elapsed.ts";
import { canStop, hasEnded } from "./ended.ts";
import { EventsTab } from "./events-tab.tsx";
import { mean, newest } from "./format-metric.ts";
import { JobsTab } from "./jobs-tab.tsx";
import { LiveTab } from "./live-tab.tsx";
import { useLiveRun, useMetricsVersion } from "./live.ts";
import { LogsTab } from "./logs-tab.tsx";
import type { MetricsStore } from "./metrics-store.ts";
import { ResultsTab } from "./results-tab.tsx";
import { LifecycleButtons, StopButton } from "./run-actions.tsx";
import classes from "./run-page.module.css";
import { RunStatus } from "./run-status.tsx";
import { SpecTab } from "./spec-tab.tsx";
import { TRAJECTORY_PARAMETERS } from "./trajectories/trajectory-filter.ts";

const BOOT_POLL_MILLISECONDS = 2_000; // boot stages are not part of the stream

export function RunPage() {
  const { runId = "" } = useParams();
  const { data: run, error, refetch } = useQuery({
    ...queries.run(runId),
    refetchInterval: ({ state: { data } }) => (data !== undefined && isBooting(data) ? BOOT_POLL_MILLISECONDS : false),
  });
  const { metrics, error: metricsError } = useLiveRun(runId);
  if (run === undefined) return error === null ? <Waiting label="Loading run" /> : <ProblemNotice error={error} retry={() => void refetch()} />;
  return (
    <>
      <Header run={run} />
      <ProblemNotice error={metricsError} />
      <Alerts run={run} />
      <StalenessNotice run={run} />
      <KeyMetrics run={run} metrics={metrics} />
      <RunTabs run={run} metrics={metrics} />
    </>
  );
}

function Header({ run }: { run: Run }) {
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const clonePath = `/runs/new?from=${run.id}`;
  usePageTitle(`${run.name}, ${run.status.toLowerCase()}`);
  return (
    <header className={classes.header}>
      <div className={classes.titles}>
        <div className={classes.name}>
          <h1>{run.name}</h1>
          <RunStatus run={run} size="md" />
        </div>
        <div className={classes.about}>
          <CopyId id={run.id} />
          <span>{run.kind}</span>
          <Link to={`/datasets?version=${run.dataset.id}`}>{run.dataset.ref}</Link>
          <span>from {run.model.name}</span>
          <span title={moment(run.created_at)}>created {ago(run.created_at)}</span>
          {run.parent !== null && <span>{run.parent.relation} of <Link to={`/runs/${run.parent.id}`}>{run.parent.name}</Link></span>}
          {run.tags.map((tag) => <Link key={tag} to={`/runs?tag=${encodeURIComponent(tag)}`}>#{tag}</Link>)}
          {run.attempt_number > 1 && <span>attempt {run.attempt_number}</span>}
        </div>
      </div>
      <fieldset disabled={readOnly !== null} title={readOnly ?? undefined} className={classes.controls} data-testid="run-controls">
        <Group gap={8}>
          {readOnly === null && <Button variant="default" component={Link} to={clonePath} leftSection={<IconCopy size={14} />}>Clone</Button>}
          <ChangeButton run={run} />
          <LifecycleButtons run={run} />
          <StopButton run={run} />
        </Group>
      </fieldset>
      <Reason run={run} />
    </header>
  );
}

/** Why the run ended or waits, the origin of the error, and advice. */
function Reason({ run }: { run: Run }) {
  const message = run.status === "QUEUED" ? run.pending_reason : run.reason_message;
  if (message === "" && (run.reason === "" || run.status === "SUCCEEDED")) return null;
  const tone = run.status === "FAILED" || run.conditions.includes("NEEDS_ATTENTION") ? "bad" : run.status === "RECOVERING" ? "warn" : "neutral";
  return (
    <div className={classes.reason} data-tone={tone} role={tone === "bad" ? "alert" : "status"}>
      <strong>{run.status === "QUEUED" ? `Waiting${run.queue_position === null ? "" : `, position ${run.queue_position} in the queue`}` : words(run.reason)}</strong>
      {message !== "" && <span>{message}</span>}
      {run.advice !== "" && <span>{run.advice}</span>}
      {run.fault !== "" && run.fault !== "none" && <span className={classes.origin}>origin: {run.fault}</span>}
      {run.status === "FAILED" && <Link to="?tab=logs">View logs</Link>}
    </div>
  );
}

/** How much data exceeded max staleness when it was trained, and advice. */
function StalenessNotice({ run }: { run: RunDetail }) {
  const message = run.staleness?.message ?? "";
  if (message === "") return null;
  return (
    <div className={classes.reason} data-tone="warn" role="status" data-testid="staleness-notice">
      <strong>Max staleness exceeded</strong>
      <span>{message}</span>
    </div>
  );
}

/** The key metrics of a run above its charts. */
function KeyMetrics({ run, metrics }: { run: Run; metrics: MetricsStore }) {
  useMetricsVersion(metrics);
  const now = useNow(1_000);
  const ended = hasEnded(run.status);
  const last = (name: string) => newest(metrics.lines(name));
  // For an ended run a rate is the mean over the whole run.
  const rate = (name: string) => (ended ? mean : newest)(metrics.lines(name));
  const rateSuffix = ended ? " (mean)" : "";
  const rewards = metrics.lines("reward/mean")[0]?.points.y ?? [];
  const average = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const gain = rewards.length >= 20 ? average(rewards.slice(-10)) - average(rewards.slice(0, 10)) : null;
  const isRl = run.kind === "rl";
  const step = run.train_step;
  const total = run.total_train_steps;
  const elapsed = elapsedSeconds(run, now);
  const steps = metrics.lines("time/step_seconds")[0]?.points;
  const pace = steps !== undefined && steps.at.length > 2 ? (steps.at.at(-1)! - steps.at[Math.max(0, steps.at.length - 11)]!) / Math.min(10, steps.at.length - 1) : null;
  const secondsLeft = canStop(run.status) && pace !== null ? Math.max(0, total - step) * pace : null;
  const bound = run.live.max_staleness ?? numberAt(run.spec, "staleness", "max");
  return (
    <dl className={classes.metrics}>
      <div className={classes.wide}>
        <dt>{isRl ? "Train step" : "Step"}</dt>
        <dd>
          {number(step)} <small>of {number(total)}</small>
          <Progress value={(100 * step) / Math.max(1, total)} size={4} mt={4} aria-label="Completed train steps" />
        </dd>
        {showsPhase(run) && run.progress !== null && (
          <dd className={classes.phase}>{words(run.progress.phase)}{run.progress.total > 0 ? ` ${run.progress.done} of ${run.progress.total}` : ""}{run.progress.message !== "" ? `: ${run.progress.message}` : ""}</dd>
        )}
      </div>
      {isRl ? (
        <>
          <KeyMetric label="Reward" note={gain === null ? "batch mean" : `${gain >= 0 ? "+" : "−"}${Math.abs(gain).toFixed(2)} vs. first 10 steps`}>{number(last("reward/mean"), 3)}</KeyMetric>
          <KeyMetric label="Mean staleness" note={`max ${number(last("staleness/max"))}, bound η = ${bound ?? DASH}`}>{number(last("staleness/mean"), 2)}</KeyMetric>
          <KeyMetric label="Policy version" note={`engine at ${number(last("engine/version"))}`}>{number(last("policy/version"))}</KeyMetric>
          <KeyMetric label={`Generated${rateSuffix}`} note="tokens/s">{number(rate("perf/generated_tokens_per_second"), 0)}</KeyMetric>
          <KeyMetric label={`Trained${rateSuffix}`} note="tokens/s">{number(rate("perf/trained_tokens_per_second"), 0)}</KeyMetric>
          <KeyMetric label="Trainer idle" note={`rollout ${percent(rate("idle/rollout_frac"), 0)}${rateSuffix}`}>{percent(rate("idle/trainer_frac"), 0)}</KeyMetric>
        </>
      ) : (
        <>
          <KeyMetric label="Loss" note="token mean (nats)">{number(last("sft/loss"), 3)}</KeyMetric>
          <KeyMetric label="Greedy accuracy" note={`stops at ${percent(numberAt(run.spec, "sft", "stop_at_greedy_accuracy"), 0)}`}>{percent(last("sft/greedy_accuracy"))}</KeyMetric>
          <KeyMetric label="Learning rate" note="">{last("sft/learning_rate")?.toExponential(1) ?? DASH}</KeyMetric>
        </>
      )}
      <KeyMetric label={run.ended_at === null ? "Elapsed" : "Took"} note={secondsLeft === null ? (run.started_at === null ? "not started" : `started ${moment(run.started_at).split(", ").at(-1)}`) : `about ${clock(secondsLeft)} left`}>
        {elapsed === null ? DASH : clock(elapsed)}
      </KeyMetric>
    </dl>
  );
}

function KeyMetric({ label, note, children }: { label: string; note: string; children: React.ReactNode }) {
  return (
    <div data-metric={label}>
      <dt>{label}</dt>
      <dd>{children}</dd>
      <dd className={classes.phase}>{note}</dd>
    </div>
  );
}

const TimelineTab = lazy(() => import("./timeline/timeline-tab.tsx"));
const TrajectoriesTab = lazy(async () => ({ default: (await import("./trajectories/trajectories-tab.tsx")).TrajectoriesTab }));

const RL_TABS: readonly string[] = ["timeline", "trajectories"];
const TABS = ["live", "timeline", "trajectories", "logs", "events", "jobs", "checkpoints", "results", "spec"] as const;

function RunTabs({ run, metrics }: { run: RunDetail; metrics: MetricsStore }) {
  const [search, setSearch] = useSearchParams();
  const tab = search.get("tab") ?? "live";
  return (
    <Tabs
      value={tab}
      keepMounted={false}
      classNames={{ tab: classes.tab, list: classes.tabs }}
      onChange={(value) => setSearch((old) => { for (const name of TRAJECTORY_PARAMETERS) old.delete(name); if (value === "live" || value === null) old.delete("tab"); else old.set("tab", value); return old; })}
    >
      <Tabs.List>
        {TABS.filter((name) => !RL_TABS.includes(name) || run.kind === "rl").map((name) => (
          <Tabs.Tab key={name} value={name}>{words(name)}</Tabs.Tab>
        ))}
      </Tabs.List>
      <Tabs.Panel value="live" pt={12}><LiveTab run={run} metrics={metrics} /></Tabs.Panel>
      <Tabs.Panel value="timeline" pt={12}><Suspense fallback={<Waiting />}><TimelineTab run={run} /></Suspense></Tabs.Panel>
      <Tabs.Panel value="trajectories" pt={12}><Suspense fallback={<Waiting />}><TrajectoriesTab run={run} /></Suspense></Tabs.Panel>
      <Tabs.Panel value="logs" pt={12}><LogsTab run={run} /></Tabs.Panel>
      <Tabs.Panel value="events" pt={12}><EventsTab run={run} /></Tabs.Panel>
      <Tabs.Panel value="jobs" pt={12}><JobsTab run={run} /></Tabs.Panel>
      <Tabs.Panel value="checkpoints" pt={12}><CheckpointsTab run={run} /></Tabs.Panel>
      <Tabs.Panel value="results" pt={12}><ResultsTab run={run} /></Tabs.Panel>
      <Tabs.Panel value="spec" pt={12}><SpecTab run={run} /></Tabs.Panel>
    </Tabs>
  );
}
