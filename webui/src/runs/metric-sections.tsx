import { TextInput } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { useMemo, useState, type ReactNode } from "react";

import { matchingCharts, sectionsOf } from "./live-sections.ts";
import { useMetricsVersion } from "./live.ts";
import classes from "./metric-sections.module.css";
import type { MetricsStore } from "./metrics-store.ts";
import chartClasses from "./run-chart.module.css";
import { otherCharts, type ChartPlan } from "./run-charts.ts";

type Props = { planned: ChartPlan[]; metrics: MetricsStore; chart: (plan: ChartPlan) => ReactNode };

/** The charts below the outcome: by topic in sections that stay open or closed, or those that a search finds. */
export function MetricSections({ planned, metrics, chart }: Props) {
  const version = useMetricsVersion(metrics);
  const [search, setSearch] = useState("");
  const [closed, setClosed] = useLocalStorage<string[]>({ key: "oolong.run.closed-sections", defaultValue: ["others"], getInitialValueInEffect: false });
  const others = useMemo(() => otherCharts(metrics.names(), planned), [metrics, planned, version]);
  const sections = useMemo(() => sectionsOf(planned, others), [planned, others]);
  const found = matchingCharts([...planned, ...others], search);
  const toggle = (id: string, isOpen: boolean) => setClosed((old) => (isOpen ? old.filter((one) => one !== id) : [...new Set([...old, id])]));
  return (
    <>
      <div className={classes.tools}>
        <TextInput type="search" size="xs" w={280} aria-label="Search all metrics" placeholder={`Search ${planned.length + others.length} charts  /`} value={search} onChange={(event) => setSearch(event.currentTarget.value)} />
        {search.trim() !== "" && <span role="status">{found.length === 0 ? "No metric of this run matches" : `${found.length} ${found.length === 1 ? "chart" : "charts"}`}</span>}
      </div>
      {search.trim() !== "" ? <div className={chartClasses.grid}>{found.map((plan) => chart({ ...plan, always: true }))}</div> : sections.map(({ id, title, plans }) => {
        const isOpen = !closed.includes(id);
        return (
          <section key={id} className={classes.section} data-section={id}>
            <h2>
              <button type="button" aria-expanded={isOpen} onClick={() => toggle(id, !isOpen)}>
                <span className={classes.mark} aria-hidden>{isOpen ? "▾" : "▸"}</span> {title} <small>{plans.length}</small>
              </button>
            </h2>
            {isOpen && <div className={chartClasses.grid}>{plans.map(chart)}</div>}
          </section>
        );
      })}
    </>
  );
}
