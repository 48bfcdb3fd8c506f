import "@mantine/core/styles/Pill.css";
import "@mantine/core/styles/PillsInput.css";
import { Button, MultiSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import { Link, useSearchParams } from "react-router";

import { Problem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import type { AxisId } from "../charts/axes.ts";
import { ChartTools } from "../charts/chart-tools.tsx";
import { LineSample } from "../charts/line-sample.tsx";
import { useChartView } from "../charts/use-chart-view.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { AXIS_METRICS } from "../runs/run-axis.ts";
import { AddRun } from "./add-run.tsx";
import { CompareChart } from "./compare-chart.tsx";
import { comparePlan, moreShared, sharedBy, shownMetrics } from "./compare-charts.ts";
import classes from "./compare-page.module.css";
import { changeCompareView, MAX_RUNS, readCompareView, runIds, withoutRun, withRun, type CompareView } from "./compare-view.ts";
import { ConfigDiff } from "./config-diff.tsx";
import { HEADLINE_METRICS } from "./headline.ts";
import { ResultsTable } from "./results-table.tsx";
import { diffSentence, specDiff } from "./spec-diff.ts";
import { useComparedRuns, useSameList, type ComparedRun, type FailedRun } from "./use-compared-runs.ts";

const AXES: readonly AxisId[] = ["step", "version", "time", "tokens", "gpu-hours"];

/** Up to ten runs side by side: results against a baseline, overlaid charts, and what differs in their specs. */
export function ComparePage() {
  const [search, setSearch] = useSearchParams();
  const text = search.toString();
  const view = useMemo(() => readCompareView(new URLSearchParams(text)), [text]);
  const change = (wanted: Partial<CompareView>) => setSearch((old) => changeCompareView(old, wanted), { replace: true });
  const slotsKey = view.slots.join();
  const slots = useMemo(() => view.slots, [slotsKey]);
  const { runs, failed, isLoading } = useComparedRuns(slots);
  const add = (id: string) => change({ slots: withRun(view.slots, id) });
  const remove = (id: string) => change({ slots: withoutRun(view.slots, id) });
  const count = runIds(slots).length;
  // The baseline of the URL may be a run that cannot be read.
  const baseline = runs.some(({ id }) => id === view.baseline) ? view.baseline : (runs[0]?.id ?? null);
  const rows = useMemo(() => specDiff(runs.map(({ run }) => run)), [runs]);
  return (
    <>
      <PageHeader title="Compare runs" aside={count > 0 && <AddRun slots={view.slots} onAdd={add} />}>
        {runs.length > 1 && <span data-testid="difference">{diffSentence(runs.map(({ run }) => run), rows)}</span>}
        {count === 1 && "Add a run to compare this one with."}
      </PageHeader>
      {failed.map((one) => <Unreadable key={one.id} failed={one} onRemove={() => remove(one.id)} />)}
      {count === 0 ? <NoRuns onAdd={add} /> : runs.length === 0 ? (isLoading && <Waiting label="Loading runs" />) : (
        <>
          <ResultsTable runs={runs} baseline={baseline} onBaseline={(id) => change({ baseline: id })} onRemove={remove} />
          <Charts runs={runs} chosen={view.metrics} onChoose={(metrics) => change({ metrics })} isLoading={isLoading} />
          <ConfigDiff runs={runs} rows={rows} baseline={baseline} />
        </>
      )}
    </>
  );
}

function NoRuns({ onAdd }: { onAdd: (id: string) => void }) {
  return (
    <Panel>
      <Empty title="No runs to compare" action={<div className={classes.choose}><AddRun slots={[]} onAdd={onAdd} /><Button variant="default" component={Link} to="/runs">Go to runs</Button></div>}>
        Select up to {MAX_RUNS} runs in the run list and choose Compare, or add them here one by one. The address of the page holds the whole view, so that you can share it.
      </Empty>
    </Panel>
  );
}

/** A run that is not in this project, or could not be read. */
function Unreadable({ failed: { id, error, retry }, onRemove }: { failed: FailedRun; onRemove: () => void }) {
  if (!(error instanceof Problem) || error.status !== 404) return <ProblemNotice error={error} retry={retry} />;
  return (
    <div className={classes.unreadable} role="alert" data-missing={id}>
      <span>There is no run <code className="mono">{id}</code> in this project. It may belong to another project, or the link is incomplete.</span>
      <Button variant="default" onClick={onRemove}>Remove it</Button>
    </div>
  );
}

type ChartsProps = { runs: readonly ComparedRun[]; chosen: readonly string[]; onChoose: (metrics: string[]) => void; isLoading: boolean };

function Charts({ runs, chosen, onChoose, isLoading }: ChartsProps) {
  const [view, onView] = useChartView(AXES);
  const definitions = useQuery(queries.metricDefinitions).data?.data;
  const help = useMemo(() => new Map(definitions?.map((one) => [one.name, one.help])), [definitions]);
  const charted = useSameList(runs.map((run) => run.charted));
  const reported = useSameList(runs.map((run) => run.names));
  const names = useMemo(() => new Map(charted.map(({ id }, index) => [id, reported[index]!])), [charted, reported]);
  const metrics = useMemo(() => shownMetrics(chosen, names), [chosen, names]);
  const plans = useMemo(() => metrics.map(comparePlan), [metrics]);
  const counts = useMemo(() => sharedBy(names), [names]);
  const more = moreShared(metrics, names);
  const wanted = [...HEADLINE_METRICS, ...AXIS_METRICS[view.axis], ...metrics].join();
  useEffect(() => { for (const { live } of charted) live.want(wanted.split(",")); }, [charted, wanted]);
  const error = runs.find(({ live }) => live.error !== null)?.live.error ?? null;
  return (
    <section aria-label="Charts">
      <div className={classes.bar}>
        <ChartTools view={view} onChange={onView} axes={AXES} />
        <MultiSelect
          aria-label="Metrics" placeholder={chosen.length === 0 ? `Search ${counts.size} metrics` : ""} searchable clearable hidePickedOptions maxDropdownHeight={320} size="xs" className={classes.search} nothingFoundMessage="No run has reported such a metric"
          value={[...chosen]} onChange={onChoose}
          data={[...new Set([...counts.keys(), ...chosen])].map((name) => ({ value: name, label: counts.get(name) === runs.length ? name : `${name} (${counts.get(name) ?? 0} of ${runs.length} runs)` }))}
        />
        <ul className={classes.legend} aria-label="Colors of the runs">
          {runs.map(({ id, run, color, dashed }) => <li key={id} title={run.name}><LineSample color={color} dashed={dashed} width={20} /><span>{run.name}</span></li>)}
        </ul>
      </div>
      <ProblemNotice error={error} />
      {metrics.length === 0 && (isLoading ? <Waiting label="Loading metrics" /> : <Panel><Empty title="No metrics yet">The charts appear with the first train step of one of these runs.</Empty></Panel>)}
      <div className={classes.grid}>
        {plans.map((plan) => <CompareChart key={plan.id} plan={plan} runs={charted} view={view} onView={onView} help={help.get(plan.id) ?? ""} />)}
      </div>
      {more.length > 0 && <Button variant="default" mt={10} onClick={() => onChoose([...metrics, ...more])} data-testid="more-metrics">Show {more.length} more {runs.length > 1 ? "shared metrics" : "metrics"}</Button>}
    </section>
  );
}
