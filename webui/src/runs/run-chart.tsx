import { ActionIcon, Tooltip } from "@mantine/core";
import { IconDownload, IconMathFunction, IconPhoto } from "@tabler/icons-react";
import { useMemo, useRef, useState, type ReactNode } from "react";

import { LineChart, type Bound, type Line } from "../charts/line-chart.tsx";
import { saveBlob, saveImage } from "../charts/save-image.ts";
import { extremes, overSteps, overTime, toCsv } from "../charts/series.ts";
import classes from "./run-chart.module.css";
import { useMetricsVersion } from "./live.ts";
import type { MetricLine, MetricsStore } from "./metrics-store.ts";
import type { ChartPlan } from "./run-charts.ts";

export type Axis = "step" | "time";

export type RunChartProps = { plan: ChartPlan; metrics: MetricsStore; axis: Axis; smoothing: number; origin: number; maxStaleness: number | null; help: string };

const STEP_TIME_METRICS = ["reward/mean", "sft/loss", "policy/version", "time/step_seconds"];

/** Max staleness at the time of each step, so that a runtime override does not change the steps before it. */
const BOUND_PLAN: Pick<ChartPlan, "lines"> = { lines: [{ metric: "staleness/bound", label: "bound", color: 1 }] };

/** The lines of a chart. A metric of several engines has one line per engine, in consecutive colors of the palette. */
function linesOf(plan: Pick<ChartPlan, "lines">, metrics: MetricsStore, axis: Axis, origin: number): Line[] {
  const steps = STEP_TIME_METRICS.flatMap((name) => metrics.lines(name)).find((line) => line.axis === "step")?.points;
  const mapToAxis = (line: MetricLine) => {
    if (axis === "time") return overTime(line.points, origin);
    if (line.axis === "step" || steps === undefined) return line.points;
    return overSteps(line.points, steps);
  };
  return plan.lines.flatMap(({ metric, label, color, dashed, exact }) => {
    const found = metrics.lines(metric);
    return found.map((line, index) => ({
      exact: exact ?? false,
      key: `${metric}|${line.axis}|${line.source}`,
      label: found.length > 1 ? `${label} ${line.source}`.trim() : label,
      color: ((color - 1 + index) % 6) + 1,
      dashed: dashed ?? false,
      points: mapToAxis(line),
    }));
  });
}

function fileName(plan: ChartPlan, ending: string): string {
  return `${plan.id.replaceAll("/", "-")}.${ending}`;
}

function saveCsv(plan: ChartPlan, axis: Axis, lines: Line[]): void {
  saveBlob(new Blob([toCsv(axis === "time" ? "seconds" : "step", lines)], { type: "text/csv" }), fileName(plan, "csv"));
}

export function RunChart({ plan, metrics, axis, smoothing, origin, maxStaleness, help }: RunChartProps) {
  const version = useMetricsVersion(metrics);
  const lines = useMemo(() => linesOf(plan, metrics, axis, origin), [plan, metrics, axis, origin, version]);
  const bounds = useMemo(() => linesOf(BOUND_PLAN, metrics, axis, origin)[0]?.points, [metrics, axis, origin, version]);
  const bound: Bound | undefined = plan.showsBound && maxStaleness !== null
    ? { value: maxStaleness, label: `max staleness η = ${maxStaleness}`, ...(bounds === undefined ? {} : { points: bounds }) }
    : undefined;
  const [isLogarithmic, setLogarithmic] = useState(plan.logarithmic ?? false);
  const card = useRef<HTMLElement>(null);
  const canBeLogarithmic = lines.every((line) => (extremes(line.points)?.min ?? 1) > 0);
  const savePng = () => {
    const plot = card.current?.querySelector("canvas");
    if (plot) saveImage(plot, plan.title, lines, fileName(plan, "png"));
  };
  const isEmpty = lines.every((line) => line.points.x.length === 0);
  if (isEmpty && !plan.always) return null;
  return (
    <section className={classes.card} ref={card}>
      <header className={classes.head}>
        <Tooltip label={help} disabled={help === ""} position="top-start">
          <h2 className={classes.title}>{plan.title}</h2>
        </Tooltip>
        {!isEmpty && (
          <div className={classes.actions}>
            {canBeLogarithmic && (
              <Action label={`Logarithmic scale for ${plan.title}`} title="Logarithmic scale" isOn={isLogarithmic} onClick={() => setLogarithmic(!isLogarithmic)}><IconMathFunction size={14} /></Action>
            )}
            <Action label={`Save ${plan.title} as PNG`} title="Save as PNG" onClick={savePng}><IconPhoto size={14} /></Action>
            <Action label={`Save ${plan.title} as CSV`} title="Save as CSV" onClick={() => saveCsv(plan, axis, lines)}><IconDownload size={14} /></Action>
          </div>
        )}
      </header>
      {isEmpty ? (
        <div className={classes.empty} data-chart={plan.id} data-points={0}>No data yet</div>
      ) : (
        <LineChart
          key={axis} name={plan.id} lines={lines} axis={axis} smoothing={smoothing} bound={bound} format={plan.format}
          logarithmic={isLogarithmic && (canBeLogarithmic || plan.logarithmic === true)} floor={plan.floor} ceiling={plan.ceiling} height={plan.height} whole={plan.whole}
        />
      )}
    </section>
  );
}

type ActionProps = { label: string; title: string; isOn?: boolean; onClick: () => void; children: ReactNode };

function Action({ label, title, isOn, onClick, children }: ActionProps) {
  return (
    <ActionIcon variant={isOn ? "light" : "subtle"} color={isOn ? undefined : "gray"} size={24} title={title} aria-label={label} aria-pressed={isOn} onClick={onClick}>
      {children}
    </ActionIcon>
  );
}
