import { Button } from "@mantine/core";
import { IconGitFork } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";
import type { LogFile, RunDetail } from "../api/schema.d.ts";
import { ago, moment, words } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { faultText, lastLines, lastTraceback, logOfFailure } from "./failure.ts";
import classes from "./failure-panel.module.css";
import { LifecycleButtons } from "./run-actions.tsx";

const TAIL_BYTES = 64 * 1024;
const LINES = 8;

/** Why a run failed or was paused by an error, whose fault it was, what its log said last, and what to do. */
export function FailurePanel({ run, isBrief }: { run: RunDetail; isBrief: boolean }) {
  const paused = run.status === "PAUSED";
  const fault = faultText(run.fault);
  const cause = words(run.reason) || "No cause was reported";
  const at = run.ended_at ?? run.status_at;
  if (isBrief) {
    return (
      <div className={classes.brief} role="status" data-testid="failure-brief">
        <strong>{paused ? "Paused by an error" : "Failed"}: {cause.toLowerCase()}</strong> <Link to="?">Cause and log</Link>
      </div>
    );
  }
  return (
    <section className={classes.panel} role="alert" aria-label="Failure" data-testid="failure">
      <header className={classes.head}>
        <h2>{paused ? "Paused by an error" : "Failed"}: {cause.toLowerCase()}</h2>
        <span title={moment(at)}>{ago(at)}, at train step {run.train_step}. {paused ? "Its slots are free and its clock is stopped." : ""}</span>
      </header>
      {run.reason_message !== "" && <pre className={classes.message} tabIndex={0} role="region" aria-label="Message">{run.reason_message}</pre>}
      <dl className={classes.facts}>
        {fault !== null && <><dt>Whose fault</dt><dd>{fault}</dd></>}
        {run.advice !== "" && <><dt>What to do</dt><dd>{run.advice}</dd></>}
      </dl>
      <Log run={run} />
      <Actions run={run} />
    </section>
  );
}

function Actions({ run }: { run: RunDetail }) {
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  if (readOnly !== null) return <p className={classes.note}>{readOnly}</p>;
  const checkpoint = run.latest_checkpoint;
  const fork = `/runs/new?from=${run.id}${checkpoint === null ? "" : `&checkpoint=${checkpoint.id}`}`;
  const isReward = run.fault === "reward";
  return (
    <>
      <div className={classes.actions}>
        <LifecycleButtons run={run} variant="filled" />
        <Button variant="default" component={Link} to={fork} leftSection={<IconGitFork size={14} />} data-testid="fork">{isReward ? "Fork with a new reward" : "Fork with another spec"}</Button>
      </div>
      <p className={classes.note}>
        {run.status === "PAUSED" ? "Resume continues this run from its checkpoint, with the same spec." : "Retry creates a run that continues from the newest checkpoint, if there is one, with the same spec."}{" "}
        The fork opens the start form with this spec{checkpoint === null ? "; no checkpoint is stored, so it starts from the same model" : ` and the checkpoint of step ${checkpoint.step}`}.
      </p>
    </>
  );
}

/** The traceback and the last lines of the log that explains the failure. */
function Log({ run }: { run: RunDetail }) {
  const files = useQuery(queries.runLogFiles(run.id));
  const jobs = useQuery(queries.runJobs(run.id));
  if (files.isPending || jobs.isPending) return <Waiting label="Loading the log" />;
  const file = logOfFailure(run, files.data ?? [], jobs.data?.data ?? []);
  const error = files.error ?? jobs.error;
  if (file === undefined) return error === null ? <p className={classes.note}>No job of this run wrote a log.</p> : <ProblemNotice error={error} retry={() => { void files.refetch(); void jobs.refetch(); }} />;
  return <LogEnd run={run} file={file} />;
}

function LogEnd({ run, file }: { run: RunDetail; file: LogFile }) {
  const { data: text, error, refetch } = useQuery(queries.runLogTail(run.id, file, TAIL_BYTES));
  if (error !== null) return <ProblemNotice error={error} retry={() => void refetch()} />;
  if (text === undefined) return <Waiting label="Loading the log" />;
  const traceback = lastTraceback(text);
  return (
    <>
      {traceback !== null && <><h3 className={classes.title}>Last traceback of {file.name}</h3><pre className={classes.log} tabIndex={0} role="region" aria-label="Traceback" data-testid="traceback">{traceback}</pre></>}
      <h3 className={classes.title}>Last lines of {file.name} <Link to={`?tab=logs&job=${file.job}:${file.incarnation}`}>Open the log</Link></h3>
      <pre className={classes.log} tabIndex={0} role="region" aria-label="Last log lines" data-testid="last-lines">{lastLines(text, LINES).join("\n") || "The log is empty."}</pre>
    </>
  );
}
