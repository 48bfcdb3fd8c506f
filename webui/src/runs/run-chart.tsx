import { ActionIcon } from "@mantine/core";
import { IconDownload, IconMathFunction, IconPhoto } from "@tabler/icons-react";
import { useMemo, useRef, type ReactNode } from "react";

import { AXES, type AxisId } from "../charts/axes.ts";
import { ChartTitle } from "../charts/chart-title.tsx";
import { LineChart, type Bound, type Line } from "../charts/line-chart.tsx";
import { saveBlob, saveImage } from "../charts/save-image.ts";
import { extremes, toCsv } from "../charts/series.ts";
import type { ChartView, ViewChange } from "../charts/view.ts";
import classes from "./run-chart.module.css";
import { useMetricsVersion } from "./live.ts";
import type { MetricLine, MetricsStore } from "./metrics-store.ts";
import { placeOn, type RunClock } from "./run-axis.ts";
import type { ChartPlan } from "./run-charts.ts";
import { useZoomDetail } from "./use-zoom-detail.ts";

export type RunChartProps = {
  plan: ChartPlan; runId: string; metrics: MetricsStore; clock: RunClock; view: ChartView; onView: (change: ViewChange) => void; maxStaleness: number | null; help: string;
};

/** Max staleness at the time of each step, so that a runtime override does not change the steps before it. */
const BOUND_PLAN: Pick<ChartPlan, "lines"> = { lines: [{ metric: "staleness/bound", label: "bound", color: 1 }] };

type Detail = (line: MetricLine) => MetricLine;

/** The lines of a chart. A metric of several engines has one line per engine, in consecutive colors of the palette. */
function linesOf(plan: Pick<ChartPlan, "lines">, metrics: MetricsStore, axis: AxisId, clock: RunClock, detailed: Detail): Line[] {
  return plan.lines.flatMap(({ metric, label, color, dashed, exact }) => {
    const found = metrics.lines(metric);
    return found.map((line, index) => ({
      exact: exact ?? false,
      key: `${metric}|${line.axis}|${line.source}`,
      label: found.length > 1 ? `${label} ${line.source}`.trim() : label,
      color: ((color - 1 + index) % 6) + 1,
      dashed: dashed ?? false,
      points: placeOn(axis, detailed(line), metrics, clock),
    }));
  });
}

const asFetched: Detail = (line) => line;

function fileName(plan: ChartPlan, ending: string): string {
  return `${plan.id.replaceAll("/", "-")}.${ending}`;
}

function saveCsv(plan: ChartPlan, axis: AxisId, lines: Line[]): void {
  saveBlob(new Blob([toCsv(AXES[axis].column, lines)], { type: "text/csv" }), fileName(plan, "csv"));
}

export function RunChart({ plan, runId, metrics, clock, view, onView, maxStaleness, help }: RunChartProps) {
  const { axis, smoothing, zoom } = view;
  const version = useMetricsVersion(metrics);
  const names = useMemo(() => plan.lines.map(({ metric }) => metric), [plan]);
  const detail = useZoomDetail([{ runId, metrics, clock }], names, axis, zoom);
  const lines = useMemo(() => linesOf(plan, metrics, axis, clock, (line) => detail(runId, line)), [plan, metrics, axis, clock, version, detail, runId]);
  const bounds = useMemo(() => linesOf(BOUND_PLAN, metrics, axis, clock, asFetched)[0]?.points, [metrics, axis, clock, version]);
  const bound: Bound | undefined = plan.showsBound && maxStaleness !== null
    ? { value: maxStaleness, label: `max staleness η = ${maxStaleness}`, ...(bounds === undefined ? {} : { points: bounds }) }
    : undefined;
  const isLogarithmic = (plan.logarithmic ?? false) !== view.switched.has(plan.id);
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
        <ChartTitle title={plan.title} help={help} metric={plan.lines[0]?.metric ?? ""} className={classes.title} />
        {!isEmpty && (
          <div className={classes.actions}>
            {canBeLogarithmic && (
              <Action label={`Logarithmic scale for ${plan.title}`} title="Logarithmic scale" isOn={isLogarithmic} onClick={() => onView({ toggleScale: plan.id })}><IconMathFunction size={14} /></Action>
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
          key={axis} name={plan.id} lines={lines} axis={axis} smoothing={smoothing} zoom={zoom} onZoom={(range) => onView({ zoom: range })} bound={bound} format={plan.format}
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
