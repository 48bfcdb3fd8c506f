import { Tooltip } from "@mantine/core";
import { useMemo } from "react";

import { LineChart, type Bound, type Line } from "../charts/line-chart.tsx";
import { overSteps, overTime } from "../charts/series.ts";
import classes from "./run-chart.module.css";
import { useMetricsVersion } from "./live.ts";
import type { MetricLine, MetricsStore } from "./metrics-store.ts";
import type { ChartPlan } from "./run-charts.ts";

export type Axis = "step" | "time";

export type RunChartProps = { plan: ChartPlan; metrics: MetricsStore; axis: Axis; smoothing: number; origin: number; maxStaleness: number | null; help: string };

const CLOCK_OF_STEPS = ["reward/mean", "sft/loss", "policy/version", "time/step_seconds"];

/** Max staleness as each step's batch was taken under it: a live change must not redraw the steps before it. */
const BOUND_PLAN: Pick<ChartPlan, "lines"> = { lines: [{ metric: "staleness/bound", label: "bound", colour: 1 }] };

/** A run has several engines: each is a line; the palette goes on from the planned colour. */
function linesOf(plan: Pick<ChartPlan, "lines">, metrics: MetricsStore, axis: Axis, origin: number): Line[] {
  const clock = CLOCK_OF_STEPS.flatMap((name) => metrics.lines(name)).find((line) => line.axis === "step")?.points;
  const place = (line: MetricLine) => {
    if (axis === "time") return overTime(line.points, origin);
    if (line.axis === "step" || clock === undefined) return line.points;
    return overSteps(line.points, clock);
  };
  return plan.lines.flatMap(({ metric, label, colour, dashed, exact }) => {
    const found = metrics.lines(metric);
    return found.map((line, index) => ({
      exact: exact ?? false,
      key: `${metric}|${line.axis}|${line.source}`,
      label: found.length > 1 ? `${label} ${line.source}`.trim() : label,
      colour: ((colour - 1 + index) % 6) + 1,
      dashed: dashed ?? false,
      points: place(line),
    }));
  });
}

export function RunChart({ plan, metrics, axis, smoothing, origin, maxStaleness, help }: RunChartProps) {
  const version = useMetricsVersion(metrics);
  const lines = useMemo(() => linesOf(plan, metrics, axis, origin), [plan, metrics, axis, origin, version]);
  const bounds = useMemo(() => linesOf(BOUND_PLAN, metrics, axis, origin)[0]?.points, [metrics, axis, origin, version]);
  const bound: Bound | undefined = plan.showsBound && maxStaleness !== null
    ? { value: maxStaleness, label: `max staleness η = ${maxStaleness}`, ...(bounds === undefined ? {} : { points: bounds }) }
    : undefined;
  const isEmpty = lines.every((line) => line.points.x.length === 0);
  if (isEmpty && !plan.always) return null;
  return (
    <section className={classes.card}>
      <Tooltip label={help} disabled={help === ""} position="top-start">
        <h3 className={classes.title}>{plan.title}</h3>
      </Tooltip>
      {isEmpty ? (
        <div className={classes.empty} data-chart={plan.id} data-points={0}>No point yet</div>
      ) : (
        <LineChart
          name={plan.id} lines={lines} axis={axis} smoothing={smoothing} bound={bound} format={plan.format}
          logarithmic={plan.logarithmic} floor={plan.floor} ceiling={plan.ceiling} height={plan.height} whole={plan.whole}
        />
      )}
    </section>
  );
}
