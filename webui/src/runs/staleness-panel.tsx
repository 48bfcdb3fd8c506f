import { SegmentedControl, Tooltip } from "@mantine/core";
import { useMemo, useState } from "react";

import type { Histogram } from "../api/schema.d.ts";
import { grouped, percent } from "../common/format.ts";
import classes from "./staleness-panel.module.css";


const LAST_STEPS = 10;
const COLUMNS = 90;

function add(histograms: Histogram[]): number[] {
  const total: number[] = [];
  for (const { counts } of histograms) {
    for (const [bucket, count] of Object.entries(counts)) {
      const index = Number(bucket);
      if (Number.isInteger(index) && index >= 0) total[index] = (total[index] ?? 0) + count;
    }
  }
  return Array.from(total, (count) => count ?? 0);
}

/** Number of trajectories in the batch of a step that exceeded the bound. */
function countOverBound({ counts }: Histogram, bound: number | null): number {
  if (bound === null) return 0;
  return Object.entries(counts).reduce((sum, [lag, count]) => (Number(lag) > bound ? sum + count : sum), 0);
}

/** One histogram per step. Trainer and controller both report it, and a resumed attempt repeats steps. */
function onePerStep(histograms: Histogram[]): Histogram[] {
  const steps = new Map<number, Histogram>();
  for (const candidate of histograms) {
    const current = steps.get(candidate.x);
    const isBetter = current === undefined || candidate.attempt > current.attempt
      || (candidate.attempt === current.attempt && candidate.source.startsWith("trainer"));
    if (isBetter) steps.set(candidate.x, candidate);
  }
  return [...steps.values()].sort((a, b) => a.x - b.x);
}

type Column = { label: string; counts: number[]; bound: number | null };

/** The columns of the heat map. In a long run several steps share a column. */
function columnsOf(histograms: Histogram[], boundAt: (step: number) => number | null): Column[] {
  const width = Math.max(1, Math.ceil(histograms.length / COLUMNS));
  const columns: Column[] = [];
  for (let start = 0; start < histograms.length; start += width) {
    const part = histograms.slice(start, start + width);
    const [first, last] = [part[0]!.x, part.at(-1)!.x];
    columns.push({ label: first === last ? `Step ${first}` : `Steps ${first} to ${last}`, counts: add(part), bound: boundAt(last) });
  }
  return columns;
}

/** Measured staleness against max staleness: a histogram of the run or its last steps, and a heat map over steps. */
export function StalenessPanel({ histograms: received, bound, bounds, unit }: {
  histograms: Histogram[];
  bound: number | null; // the current max staleness
  bounds: Map<number, number>; // by step: max staleness when the trainer took the batch, because it can change during a run
  unit: string;
}) {
  const [span, setSpan] = useState("all");
  const histograms = useMemo(() => onePerStep(received), [received]);
  const shown = span === "all" ? histograms : histograms.slice(-LAST_STEPS);
  const counts = useMemo(() => add(shown), [shown]);
  const columns = useMemo(() => columnsOf(histograms, (step) => bounds.get(step) ?? bound), [histograms, bounds, bound]);
  const total = counts.reduce((sum, count) => sum + count, 0);
  const highest = Math.max(1, ...counts);
  const over = shown.reduce((sum, histogram) => sum + countOverBound(histogram, bounds.get(histogram.x) ?? bound), 0);
  const buckets = Math.max(counts.length, ...columns.map((column) => (column.bound ?? 0) + 2), (bound ?? 0) + 2);
  return (
    <div className={classes.panel} data-testid="staleness-histogram" data-total={total}>
      <div className={classes.head}>
        <h2 className={classes.title}>Staleness vs. max staleness</h2>
        <SegmentedControl size="xs" value={span} onChange={setSpan} data={[{ value: "all", label: "All steps" }, { value: "last", label: `Last ${LAST_STEPS} steps` }]} />
      </div>
      {total === 0 ? <div className={classes.none}>No train steps yet</div> : (
        <>
          <div className={classes.bars} role="img" aria-label={`Histogram of staleness in versions: ${counts.map((count, index) => `${index}: ${count}`).join(", ")}`}>
            {Array.from({ length: buckets }, (_, index) => {
              const count = counts[index] ?? 0;
              const isOver = bound !== null && index > bound;
              return (
                <Tooltip key={index} label={`${grouped(count)} ${unit} (${percent(total === 0 ? 0 : count / total)}) with staleness ${index}${isOver ? ", over max staleness" : ""}`}>
                  <div className={classes.bucket} data-over={isOver} data-bound={index === bound}>
                    <span className="tabular">{count > 0 ? percent(count / total, count / total < 0.1 ? 1 : 0).replace(" ", " ") : ""}</span>
                    <i style={{ height: `${Math.max(count > 0 ? 2 : 0, (74 * count) / highest)}px` }} />
                    <b className="tabular">{index}</b>
                  </div>
                </Tooltip>
              );
            })}
          </div>
          <p className={classes.note}>
            Policy versions between the oldest token of a trajectory and the train step{bound !== null && <>; <strong data-over={over > 0}>{percent(over / total)} over η{shown.every(({ x }) => (bounds.get(x) ?? bound) === bound) ? ` = ${bound}` : " at the time of the step"}</strong></>}
          </p>
          <Heat columns={columns} buckets={buckets} />
        </>
      )}
    </div>
  );
}

function Heat({ columns, buckets }: { columns: Column[]; buckets: number }) {
  const cell = 7;
  return (
    <svg className={classes.heat} viewBox={`0 0 ${columns.length * 10} ${buckets * cell}`} preserveAspectRatio="none" height={buckets * cell} role="img" aria-label="Staleness over train steps">
      {columns.map((column, x) => {
        const total = column.counts.reduce((sum, count) => sum + count, 0) || 1;
        return column.counts.map((count, index) =>
          count === 0 ? null : (
            <rect key={`${x}-${index}`} x={x * 10} y={(buckets - 1 - index) * cell} width={9.4} height={cell - 0.6} fill={`rgba(var(--heat), ${0.12 + 0.88 * (count / total)})`}>
              <title>{`${column.label}: ${percent(count / total)} at staleness ${index}`}</title>
            </rect>
          ));
      })}
      {columns.map(({ bound }, x) => bound !== null && (
        <line key={`bound-${x}`} x1={x * 10} x2={x * 10 + 10} y1={(buckets - 1 - bound) * cell} y2={(buckets - 1 - bound) * cell} stroke="var(--bad)" strokeWidth="1" vectorEffect="non-scaling-stroke" />
      ))}
    </svg>
  );
}
