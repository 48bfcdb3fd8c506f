import { Progress } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";

import type { Run } from "../api/schema.d.ts";
import { ago, clock, DASH, moment, number } from "../common/format.ts";
import { numberAt } from "../common/json.ts";
import { elapsedSeconds } from "./elapsed.ts";
import { hasEnded } from "./ended.ts";
import { RewardCurve } from "./reward-curve.tsx";
import type { ColumnId } from "./run-columns.ts";
import { reasonOf } from "./run-reason.ts";
import { RunStatus } from "./run-status.tsx";
import classes from "./run-cells.module.css";
import type { Curve } from "./sparkline.ts";

/** What a cell shows besides the run itself. */
export type CellContext = { now: number; curve: Curve | undefined };

/** The name, and as a second line why the run waits or needs attention, or else what it is. */
export function RunName({ run }: { run: Run }) {
  const reason = reasonOf(run);
  return (
    <>
      <Link to={`/runs/${run.id}`} className={classes.name} onClick={(event) => event.stopPropagation()} title={run.name}>{run.name}</Link>
      {reason === null
        ? <div className={classes.sub}>{run.kind} · {run.dataset.ref}{run.tags.length > 0 && <> · {run.tags.map((tag) => `#${tag}`).join(" ")}</>}</div>
        : <div className={classes.sub} data-tone={reason.tone} title={reason.text} data-testid="reason">{reason.text}</div>}
    </>
  );
}

export function RunProgress({ run }: { run: Run }) {
  if (!run.total_train_steps) return <>{DASH}</>;
  return (
    <div className={classes.progress}>
      <Progress value={(100 * run.train_step) / run.total_train_steps} size={4} color={hasEnded(run.status) ? "gray" : undefined} aria-label="Progress" />
      <span>{run.train_step} / {run.total_train_steps}</span>
    </div>
  );
}

export function elapsedText(run: Run, now: number): string {
  const seconds = elapsedSeconds(run, now);
  return seconds === null ? DASH : clock(seconds);
}

function Since({ at, now }: { at: string | null; now: number }) {
  return <span title={moment(at)}>{ago(at, now)}</span>;
}

function Cut({ text }: { text: string }) {
  return <div className={classes.cut} title={text}>{text || DASH}</div>;
}

/** The cells of the run list, by column. */
export const CELLS: Record<ColumnId, (run: Run, context: CellContext) => ReactNode> = {
  status: (run) => <div className={classes.badges}><RunStatus run={run} /></div>,
  progress: (run) => <RunProgress run={run} />,
  curve: (_, { curve }) => <RewardCurve curve={curve} />,
  reward: (run) => number(run.reward_mean),
  staleness: (run) => {
    const bound = run.live.max_staleness ?? numberAt(run.spec, "staleness", "max");
    return <>{number(run.staleness_mean, 2)}{run.kind === "rl" && bound !== null && <span className={classes.bound}> / {bound}</span>}</>;
  },
  version: (run) => (run.kind === "rl" ? run.policy_version : DASH),
  elapsed: (run, { now }) => elapsedText(run, now),
  created: (run, { now }) => <Since at={run.created_at} now={now} />,
  started: (run, { now }) => <Since at={run.started_at} now={now} />,
  ended: (run, { now }) => <Since at={run.ended_at} now={now} />,
  dataset: (run) => <Cut text={run.dataset.ref} />,
  model: (run) => <Cut text={run.model.name} />,
  author: (run) => <Cut text={run.created_by} />,
  tags: (run) => <Cut text={run.tags.map((tag) => `#${tag}`).join(" ")} />,
  priority: (run) => run.priority,
  slots: (run) => run.slots_needed,
  id: (run) => <span className="mono">{run.id}</span>,
};
