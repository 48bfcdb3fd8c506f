import "@mantine/core/styles/Tabs.css";
import { Tabs } from "@mantine/core";
import { lazy, Suspense, type ComponentType } from "react";
import { useSearchParams } from "react-router";

import type { RunDetail } from "../api/schema.d.ts";
import { words } from "../common/format.ts";
import { Waiting } from "../common/notices.tsx";
import { LiveTab } from "./live-tab.tsx";
import type { MetricsStore } from "./metrics-store.ts";
import classes from "./run-page.module.css";
import { TAB_PARAMETERS } from "./tab-parameters.ts";

type TabProps = { run: RunDetail; metrics: MetricsStore };
type Tab = { name: string; rlOnly?: boolean; Content: ComponentType<TabProps> };

/** The tabs of a run. All but the first load their code when they are opened. */
const TABS: Tab[] = [
  { name: "live", Content: LiveTab },
  { name: "timeline", rlOnly: true, Content: lazy(() => import("./timeline/timeline-tab.tsx")) },
  { name: "trajectories", rlOnly: true, Content: lazy(async () => ({ default: (await import("./trajectories/trajectories-tab.tsx")).TrajectoriesTab })) },
  { name: "logs", Content: lazy(async () => ({ default: (await import("./logs/logs-tab.tsx")).LogsTab })) },
  { name: "events", Content: lazy(async () => ({ default: (await import("./events-tab.tsx")).EventsTab })) },
  { name: "jobs", Content: lazy(async () => ({ default: (await import("./jobs-tab.tsx")).JobsTab })) },
  { name: "checkpoints", Content: lazy(async () => ({ default: (await import("./checkpoints-tab.tsx")).CheckpointsTab })) },
  { name: "results", Content: lazy(async () => ({ default: (await import("./results-tab.tsx")).ResultsTab })) },
  { name: "spec", Content: lazy(async () => ({ default: (await import("./spec-tab.tsx")).SpecTab })) },
];

export function RunTabs({ run, metrics }: TabProps) {
  const [search, setSearch] = useSearchParams();
  const open = (tab: string | null) =>
    setSearch((old) => {
      for (const name of TAB_PARAMETERS) old.delete(name);
      if (tab === "live" || tab === null) old.delete("tab");
      else old.set("tab", tab);
      return old;
    });
  return (
    <Tabs value={search.get("tab") ?? "live"} keepMounted={false} classNames={{ tab: classes.tab, list: classes.tabs }} onChange={open}>
      <Tabs.List>
        {TABS.filter(({ rlOnly }) => !rlOnly || run.kind === "rl").map(({ name }) => <Tabs.Tab key={name} value={name}>{words(name)}</Tabs.Tab>)}
      </Tabs.List>
      {TABS.map(({ name, Content }) => (
        <Tabs.Panel key={name} value={name} pt={12}>
          <Suspense fallback={<Waiting />}><Content run={run} metrics={metrics} /></Suspense>
        </Tabs.Panel>
      ))}
    </Tabs>
  );
}
