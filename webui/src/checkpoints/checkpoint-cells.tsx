import { IconPinFilled } from "@tabler/icons-react";
import { Link } from "react-router";

import type { Checkpoint } from "../api/schema.d.ts";
import { ago, DASH, moment, number } from "../common/format.ts";
import classes from "./checkpoint-cells.module.css";
import { metricLabel, orderedMetrics } from "./checkpoint-metrics.ts";

/** How many metrics a row shows. The others are in its tooltip and on the checkpoint's page. */
const METRICS_IN_A_ROW = 2;

export const checkpointPath = (id: string) => `/checkpoints/${id}`;

/** The run and step as a link, with what sets this checkpoint apart. */
export function CheckpointName({ checkpoint, withRun = true }: { checkpoint: Checkpoint; withRun?: boolean }) {
  return (
    <div className={classes.name}>
      <Link to={checkpointPath(checkpoint.id)} title={`${checkpoint.run.name}, step ${checkpoint.step}`}>{withRun ? `${checkpoint.run.name}, step ${checkpoint.step}` : checkpoint.step}</Link>
      {checkpoint.final && <span className={classes.note} title="It ended its run">final</span>}
      {checkpoint.pinned && <IconPinFilled size={13} className={classes.pin} role="img" aria-label="Pinned: retention never deletes it" />}
    </div>
  );
}

export function AliasNames({ names }: { names: string[] }) {
  if (names.length === 0) return null;
  return <span className={classes.aliases}>{names.map((name) => <span key={name} className={classes.alias}>{name}</span>)}</span>;
}

/** The metrics that decide first; all of them on hover. */
export function CheckpointMetrics({ metrics }: { metrics: Checkpoint["metrics"] }) {
  const all = orderedMetrics(metrics);
  if (all.length === 0) return <>{DASH}</>;
  const shown = all.slice(0, METRICS_IN_A_ROW);
  return (
    <span className={classes.metrics} title={all.map(([name, value]) => `${metricLabel(name)} ${number(value)}`).join("\n")}>
      {shown.map(([name, value]) => <span key={name}>{metricLabel(name)} <b>{number(value)}</b></span>)}
      {all.length > shown.length && <span>{all.length - shown.length} more</span>}
    </span>
  );
}

export function Age({ at, now }: { at: string | null; now: number }) {
  return <time dateTime={at ?? undefined} title={moment(at)}>{ago(at, now)}</time>;
}
