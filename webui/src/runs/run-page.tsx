import { Button, Group } from "@mantine/core";
import { IconChartLine, IconCopy, IconPencil } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { Link, useParams, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { Run, RunDetail } from "../api/schema.d.ts";
import { CopyId } from "../common/copy-id.tsx";
import { ago, moment, words } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { usePageTitle } from "../common/use-page-title.ts";
import { comparePath } from "../compare/compare-view.ts";
import { Alerts } from "./alerts.tsx";
import { isBooting } from "./boot.ts";
import { ChangeButton } from "./change-button.tsx";
import { isFailure } from "./failure.ts";
import { KeyMetrics } from "./key-metrics.tsx";
import { useLiveRun } from "./live.ts";
import { MadeFrom } from "./made-from.tsx";
import { LifecycleButtons, StopButton } from "./run-actions.tsx";
import classes from "./run-page.module.css";
import { RunStatus } from "./run-status.tsx";
import { RunTabs } from "./run-tabs.tsx";

const FailurePanel = lazy(async () => ({ default: (await import("./failure-panel.tsx")).FailurePanel }));

const BOOT_POLL_MILLISECONDS = 2_000; // boot stages are not part of the stream

export function RunPage() {
  const { runId = "" } = useParams();
  const { data: run, error, refetch } = useQuery({
    ...queries.run(runId),
    refetchInterval: ({ state: { data } }) => (data !== undefined && isBooting(data) ? BOOT_POLL_MILLISECONDS : false),
  });
  const { metrics, error: metricsError } = useLiveRun(runId);
  const isCompact = (useSearchParams()[0].get("tab") ?? "live") !== "live"; // the other tabs need the height
  if (run === undefined) return error === null ? <Waiting label="Loading run" /> : <ProblemNotice error={error} retry={() => void refetch()} />;
  return (
    <>
      <Header run={run} />
      <ProblemNotice error={metricsError} />
      {isFailure(run) && <Suspense fallback={null}><FailurePanel run={run} isBrief={isCompact} /></Suspense>}
      <Alerts run={run} isBrief={isCompact} />
      <StalenessNotice run={run} />
      <KeyMetrics run={run} metrics={metrics} isCompact={isCompact} />
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
          <MadeFrom runId={run.id} />
          {run.tags.map((tag) => <Link key={tag} to={`/runs?tag=${encodeURIComponent(tag)}`}>#{tag}</Link>)}
          {run.attempt_number > 1 && <span>attempt {run.attempt_number}</span>}
        </div>
      </div>
      <fieldset disabled={readOnly !== null} title={readOnly ?? undefined} className={classes.controls} data-testid="run-controls">
        <Group gap={8}>
          <Button variant="default" component={Link} to={comparePath([run.id])} leftSection={<IconChartLine size={14} />}>Compare</Button>
          {readOnly === null && run.status === "DRAFT" && <Button component={Link} to={`/runs/new?draft=${run.id}`} leftSection={<IconPencil size={14} />}>Edit draft</Button>}
          {readOnly === null && <Button variant="default" component={Link} to={clonePath} leftSection={<IconCopy size={14} />}>Clone</Button>}
          <ChangeButton run={run} />
          {!isFailure(run) && <LifecycleButtons run={run} />}
          <StopButton run={run} />
        </Group>
      </fieldset>
      <Reason run={run} />
    </header>
  );
}

/** Why the run ended or waits, and advice. A failure has its own panel. */
function Reason({ run }: { run: Run }) {
  const message = run.status === "QUEUED" ? run.pending_reason : run.reason_message;
  if (isFailure(run) || (message === "" && (run.reason === "" || run.status === "SUCCEEDED"))) return null;
  return (
    <div className={classes.reason} data-tone={run.status === "RECOVERING" ? "warn" : "neutral"} role="status">
      <strong>{run.status === "QUEUED" ? `Waiting${run.queue_position === null ? "" : `, position ${run.queue_position} in the queue`}` : words(run.reason)}</strong>
      {message !== "" && <span>{message}</span>}
      {run.advice !== "" && <span>{run.advice}</span>}
      {run.fault !== "" && run.fault !== "none" && <span className={classes.origin}>origin: {run.fault}</span>}
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
