import "@mantine/core/styles/Slider.css";
import { SegmentedControl, Slider } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { RunDetail } from "../api/schema.d.ts";
import { at, counts, numberAt, object } from "../common/json.ts";
import { showsBoot } from "./boot.ts";
import { BootChecklist } from "./boot-checklist.tsx";
import { hasEnded } from "./ended.ts";
import { LedgerPanel } from "./ledger-panel.tsx";
import { useMetricsVersion } from "./live.ts";
import type { MetricsStore } from "./metrics-store.ts";
import { unixSeconds } from "./metrics-store.ts";
import { PipelineStrip } from "./pipeline-strip.tsx";
import { RunChart, type Axis, type RunChartProps } from "./run-chart.tsx";
import classes from "./run-chart.module.css";
import { otherCharts, RL_CHARTS, SFT_CHARTS, sourceCharts, type ChartPlan } from "./run-charts.ts";
import { StalenessPanel } from "./staleness-panel.tsx";
import { SyncPanel } from "./sync-panel.tsx";

const DEFAULT_SMOOTHING = 0.5;

/** The live view of a run: pipeline, charts, staleness, ledger and weight sync. */
export function LiveTab({ run, metrics }: { run: RunDetail; metrics: MetricsStore }) {
  const [search, setSearch] = useSearchParams();
  const axis: Axis = search.get("axis") === "time" ? "time" : "step";
  const smoothing = Number(search.get("smooth") ?? DEFAULT_SMOOTHING);
  const set = (name: string, value: string) =>
    setSearch((old) => { old.set(name, value); return old; }, { replace: true });
  const isRl = run.kind === "rl";
  const pipeline = useQuery({ ...queries.runState(run.id, "pipeline"), enabled: isRl }).data?.value ?? null;
  const histograms = useQuery({ ...queries.runHistograms(run.id, "staleness/consumed_trajectories"), enabled: isRl }).data?.data ?? [];
  const controller = object(run.summary["controller"]);
  const bound = run.live.max_staleness ?? numberAt(run.spec, "staleness", "max");
  const origin = unixSeconds(run.started_at ?? run.created_at);
  const planned = isRl ? [...RL_CHARTS, ...sourceCharts(counts(at(run.spec, "dataset", "weights")).map(([name]) => name))] : SFT_CHARTS;
  const chart = (plan: ChartPlan) => (
    <DescribedChart key={plan.id} plan={plan} metrics={metrics} axis={axis} smoothing={smoothing} origin={origin} maxStaleness={bound} />
  );
  // Before the first point there is nothing to draw. A later attempt keeps the charts of the attempts before it.
  if (showsBoot(run) && run.train_step === 0 && metrics.lines("time/step_seconds").length === 0) return <BootChecklist run={run} />;
  return (
    <>
      {showsBoot(run) && <BootChecklist run={run} />}
      {isRl && <PipelineStrip pipeline={pipeline} groupsPerStep={numberAt(run.spec, "trainer", "groups_per_step")} ended={hasEnded(run.status)} />}
      <div className={classes.tools}>
        <label>
          X axis
          <SegmentedControl value={axis} onChange={(value) => set("axis", value)} data={[{ value: "step", label: isRl ? "Train step" : "Step" }, { value: "time", label: "Time" }]} />
        </label>
        <label>
          Smoothing
          <Slider w={130} size="sm" min={0} max={0.95} step={0.05} value={smoothing} onChange={(value) => set("smooth", String(value))} label={(value) => value.toFixed(2)} thumbLabel="Smoothing" />
          <span className="tabular">{smoothing.toFixed(2)}</span>
        </label>
        <span>Drag across a chart to zoom, double-click to reset</span>
      </div>
      <div className={classes.grid}>
        {planned.slice(0, 2).map(chart)}
        {isRl && <StalenessPanel histograms={histograms} bound={bound} bounds={boundsOf(metrics)} unit="trajectories" />}
        {planned.slice(2).map(chart)}
      </div>
      {isRl && (
        <div className={classes.grid} style={{ marginTop: 10, gridTemplateColumns: "repeat(auto-fit, minmax(min(420px, 100%), 1fr))" }}>
          <LedgerPanel ledger={object(pipeline?.["ledger"]) ?? object(controller?.["ledger"])} tokens={object(pipeline?.["tokens"]) ?? object(controller?.["tokens"])} />
          <SyncPanel metrics={metrics} />
        </div>
      )}
      <OtherMetrics planned={planned} metrics={metrics} chart={chart} />
    </>
  );
}

/** Max staleness by train step, as it was when the trainer took the batch of the step. */
function boundsOf(metrics: MetricsStore): Map<number, number> {
  const points = metrics.lines("staleness/bound").flatMap(({ points: { x, y } }) => x.map((step, index) => [step, y[index]!] as const));
  return new Map(points);
}

function OtherMetrics({ planned, metrics, chart }: { planned: ChartPlan[]; metrics: MetricsStore; chart: (plan: ChartPlan) => React.ReactNode }) {
  const version = useMetricsVersion(metrics);
  const others = useMemo(() => otherCharts(metrics.names(), planned), [metrics, planned, version]);
  if (others.length === 0) return null;
  return (
    <details>
      <summary className={classes.section}>All other metrics <small>{others.length}</small></summary>
      <div className={classes.grid}>{others.map(chart)}</div>
    </details>
  );
}

/** A chart with the help texts of its metric definitions. */
function DescribedChart(props: Omit<RunChartProps, "help">) {
  const { data } = useQuery(queries.metricDefinitions);
  const help = props.plan.lines
    .map(({ metric, label }) => [label, data?.data.find((entry) => entry.name === metric)?.help] as const)
    .filter(([, text]) => text !== undefined)
    .map(([label, text]) => (props.plan.lines.length > 1 ? `${label}: ${text}` : text))
    .join(". ");
  return <RunChart {...props} help={help} />;
}
