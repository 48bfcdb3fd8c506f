import { Button, Select } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "react-router";

import { urlOf } from "../api/http.ts";
import * as queries from "./usage-queries.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { Budgets } from "./budgets.tsx";
import { outcomeHelp, outcomeLabel } from "./outcomes.ts";
import { StackedBars } from "./stacked-bars.tsx";
import { UsageTable } from "./usage-table.tsx";
import classes from "./usage.module.css";
import { axisTop, bucketOf, money, partsOf, PERIODS, sinceOf, slotTime, usageView } from "./usage-view.ts";

const STACK_LABELS = { outcome: "What became of it", phase: "What slots did", team: "Team", project: "Project" };
const ROW_LABELS = { project: "By project", team: "By team", run: "By run" };
const MEASURE_LABELS = { time: "Slot-hours", cost: "Cost" };
const DEVICE_LABELS = { "": "All slots", cuda: "GPU slots", cpu: "CPU slots" };

const options = (labels: Record<string, string>) => Object.entries(labels).map(([value, label]) => ({ value, label }));

/** Who used the pool, when, and what became of the time. */
export function UsagePage() {
  const [search, setSearch] = useSearchParams();
  const [openedAt] = useState(() => Date.now());
  const view = usageView(search);
  const window = { since: sinceOf(view, openedAt), device: view.device || undefined };
  const series = useQuery({ ...queries.usageSeries({ ...window, by: view.stack, bucket: bucketOf(view) }), placeholderData: keepPreviousData });
  const usage = useQuery({ ...queries.usage({ ...window, by: view.by }), placeholderData: keepPreviousData });
  const choose = (name: string) => (value: string | null) => setSearch((old) => { const next = new URLSearchParams(old); next.set(name, value ?? ""); return next; }, { replace: true });
  const select = (name: "days" | "stack" | "by" | "device" | "measure", label: string, data: readonly { value: string; label: string }[], width: number) => (
    <Select aria-label={label} data={data} value={String(view[name])} onChange={choose(name)} allowDeselect={false} w={width} />
  );
  const hasCost = (usage.data?.total.cost ?? 0) > 0;
  const measure = hasCost ? view.measure : "time"; // without prices there is nothing to show
  const parts = series.data === undefined ? [] : partsOf(series.data.data, { stack: series.data.by, measure }, outcomeLabel);
  const total = usage.data?.total;
  const currency = usage.data?.currency ?? "";
  const format = (value: number) => (measure === "cost" ? money(value, currency) : slotTime(value));
  return (
    <>
      <PageHeader title="Usage" aside={<>{select("device", "Device", options(DEVICE_LABELS), 130)}{select("days", "Period", PERIODS, 150)}</>}>
        {total === undefined ? "Who used the pools, when, and what became of the time." : `${slotTime(total.slot_seconds)} of slots, ${slotTime(total.gpu_seconds)} of them GPUs, in ${total.runs} run${total.runs === 1 ? "" : "s"}${hasCost ? `, for ${money(total.cost, currency)}` : ""}. ${PERIODS.find(({ value }) => value === String(view.days))?.label}.`}
      </PageHeader>
      <div className={classes.page}>
        <Budgets currency={currency} />
        <Panel title={`${MEASURE_LABELS[measure]} per ${series.data?.bucket ?? bucketOf(view)}`} aside={<>{hasCost && select("measure", "Measure", options(MEASURE_LABELS), 120)}{select("stack", "Stacked by", options(STACK_LABELS), 180)}</>}>
          <ProblemNotice error={series.error} retry={() => void series.refetch()} />
          {series.isPending ? <Waiting /> : series.data !== undefined && (parts.every((part) => part.total === 0) ? (
            <Empty title="No slot was used in this period">Each hour that a run, an evaluation or a playground holds a slot counts here.</Empty>
          ) : (
            <StackedBars parts={parts} starts={series.data.starts} bucket={series.data.bucket} top={axisTop(parts, measure)} format={format} label={`${MEASURE_LABELS[measure]} per ${series.data.bucket} by ${series.data.by}; the table below has the sums`} />
          ))}
          {series.data?.by === "outcome" && <Meanings codes={parts.map(({ key }) => key)} />}
        </Panel>
        <Panel
          title="Totals" flush
          aside={<>{select("by", "Rows", options(ROW_LABELS), 130)}<Button component="a" variant="default" leftSection={<IconDownload size={14} />} href={urlOf("/api/v1/pool/usage", {}, { ...window, by: view.by, format: "csv" })} download>CSV</Button></>}
        >
          <ProblemNotice error={usage.error} retry={() => void usage.refetch()} />
          {usage.isPending ? <Waiting /> : usage.data !== undefined && (usage.data.data.length === 0
            ? <Empty title="Nothing to list">Choose a longer period or other slots.</Empty>
            : <UsageTable usage={usage.data} by={usage.data.by} />)}
          {hasCost && total !== undefined && total.unpriced_slot_seconds > 0 && <p className={classes.more}>{slotTime(total.unpriced_slot_seconds)} had no price when they were granted, and are not in the cost.</p>}
        </Panel>
      </div>
    </>
  );
}

function Meanings({ codes }: { codes: string[] }) {
  return (
    <details className={classes.meanings}>
      <summary>What these mean</summary>
      <dl>{codes.map((code) => <div key={code}><dt>{outcomeLabel(code)}</dt><dd>{outcomeHelp(code)}</dd></div>)}</dl>
      <p>Time is counted as lost first. The rest of an engine's work is divided like its run's tokens. <a href="/docs/how-to/teams" target="_blank" rel="noreferrer">How usage is counted</a></p>
    </details>
  );
}
