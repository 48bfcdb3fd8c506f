import { useQuery } from "@tanstack/react-query";

import * as queries from "../api/queries.ts";
import type { RunDetail } from "../api/schema.d.ts";
import type { AxisId } from "../charts/axes.ts";
import { ChartTools } from "../charts/chart-tools.tsx";
import { useChartView } from "../charts/use-chart-view.ts";
import { at, counts, numberAt, object } from "../common/json.ts";
import { showsBoot } from "./boot.ts";
import { BootChecklist } from "./boot-checklist.tsx";
import { hasEnded } from "./ended.ts";
import { LedgerPanel } from "./ledger-panel.tsx";
import type { MetricsStore } from "./metrics-store.ts";
import { PipelineStrip } from "./pipeline-strip.tsx";
import { RunChart, type RunChartProps } from "./run-chart.tsx";
import classes from "./run-chart.module.css";
import { MetricSections } from "./metric-sections.tsx";
import { outcomeOf } from "./live-sections.ts";
import { CHARTS_BY_KIND, RL_CHARTS, SFT_CHARTS, sourceCharts, type ChartPlan } from "./run-charts.ts";
import { StalenessPanel } from "./staleness-panel.tsx";
import { SyncPanel } from "./sync-panel.tsx";
import { useRunClock } from "./use-run-clock.ts";

const AXES: readonly AxisId[] = ["step", "version", "time", "tokens", "gpu-hours"];
const SFT_AXES: readonly AxisId[] = ["step", "time", "gpu-hours"];

/** The live view of a run: pipeline, charts, staleness, ledger and weight sync. */
export function LiveTab({ run, metrics }: { run: RunDetail; metrics: MetricsStore }) {
  const isRl = run.kind === "rl";
  const axes = isRl ? AXES : SFT_AXES;
  const [view, onView] = useChartView(axes);
  const clock = useRunClock(run, view.axis === "gpu-hours");
  const pipeline = useQuery({ ...queries.runState(run.id, "pipeline"), enabled: isRl }).data?.value ?? null;
  const histograms = useQuery({ ...queries.runHistograms(run.id, "staleness/consumed_trajectories"), enabled: isRl }).data?.data ?? [];
  const controller = object(run.summary["controller"]);
  const bound = run.live.max_staleness ?? numberAt(run.spec, "staleness", "max");
  const planned = isRl ? [...RL_CHARTS, ...sourceCharts(counts(at(run.spec, "dataset", "weights")).map(([name]) => name))] : (CHARTS_BY_KIND[run.kind] ?? SFT_CHARTS);
  const chart = (plan: ChartPlan) => (
    <DescribedChart key={plan.id} plan={plan} runId={run.id} metrics={metrics} clock={clock} view={view} onView={onView} maxStaleness={bound} />
  );
  // Before the first point there is nothing to draw. A later attempt keeps the charts of the attempts before it.
  if (showsBoot(run) && run.train_step === 0 && metrics.lines("time/step_seconds").length === 0) return <BootChecklist run={run} />;
  return (
    <>
      {showsBoot(run) && <BootChecklist run={run} />}
      {isRl && <PipelineStrip pipeline={pipeline} groupsPerStep={numberAt(run.spec, "trainer", "groups_per_step")} ended={hasEnded(run.status)} />}
      <ChartTools view={view} onChange={onView} axes={axes} labels={isRl ? {} : { step: "Step" }} />
      <div className={classes.grid}>
        {outcomeOf(planned).map(chart)}
        {isRl && <StalenessPanel histograms={histograms} bound={bound} bounds={boundsOf(metrics)} unit="trajectories" />}
      </div>
      <MetricSections planned={planned} metrics={metrics} chart={chart} />
      {isRl && (
        <div className={classes.grid} style={{ marginTop: 10, gridTemplateColumns: "repeat(auto-fit, minmax(min(420px, 100%), 1fr))" }}>
          <LedgerPanel ledger={object(pipeline?.["ledger"]) ?? object(controller?.["ledger"])} tokens={object(pipeline?.["tokens"]) ?? object(controller?.["tokens"])} />
          <SyncPanel metrics={metrics} />
        </div>
      )}
    </>
  );
}

/** Max staleness by train step, as it was when the trainer took the batch of the step. */
function boundsOf(metrics: MetricsStore): Map<number, number> {
  const points = metrics.lines("staleness/bound").flatMap(({ points: { x, y } }) => x.map((step, index) => [step, y[index]!] as const));
  return new Map(points);
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
