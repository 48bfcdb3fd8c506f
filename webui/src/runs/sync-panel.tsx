import { Table } from "@mantine/core";

import { Panel } from "../common/panel.tsx";
import { duration, grouped, percent } from "../common/format.ts";
import { concatenate, extremes, mean, pointCount } from "../charts/series.ts";
import { useMetricsVersion } from "./live.ts";
import type { MetricsStore } from "./metrics-store.ts";

const STAGES: { metric: string; label: string; who: string }[] = [
  { metric: "time/gather_seconds", label: "Gather weights", who: "trainer waits" },
  { metric: "time/write_seconds", label: "Write weights", who: "trainer waits" },
  { metric: "time/publish_seconds", label: "Publish (total)", who: "trainer waits" },
  { metric: "weight_sync/load_seconds", label: "Load in engine", who: "engine" },
  { metric: "weight_sync/paused_seconds", label: "Engine paused", who: "engine waits" },
  { metric: "weight_sync/delay_seconds", label: "Publish to load", who: "nobody waits" },
];

/** The time that each stage of publishing a policy version takes. */
export function SyncPanel({ metrics }: { metrics: MetricsStore }) {
  useMetricsVersion(metrics);
  const values = (name: string) => concatenate(metrics.lines(name).map((line) => line.points));
  const pausedFraction = mean(values("weight_sync/engine_paused_frac"));
  return (
    <Panel title="Weight sync" aside={pausedFraction === null ? undefined : `engines paused ${percent(pausedFraction)} of the time`} flush>
      <Table verticalSpacing={4} className="tabular" data-testid="weight-sync">
        <Table.Thead>
          <Table.Tr><Table.Th>Stage</Table.Th><Table.Th ta="right">Last</Table.Th><Table.Th ta="right">Mean</Table.Th><Table.Th ta="right">Max</Table.Th><Table.Th ta="right">Versions</Table.Th></Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {STAGES.map(({ metric, label, who }) => {
            const found = values(metric);
            return (
              <Table.Tr key={metric}>
                <Table.Td>{label} <small style={{ color: "var(--ink-faint)" }}>{who}</small></Table.Td>
                <Table.Td ta="right">{duration(found.y.at(-1))}</Table.Td>
                <Table.Td ta="right">{duration(mean(found))}</Table.Td>
                <Table.Td ta="right">{duration(extremes(found)?.max)}</Table.Td>
                <Table.Td ta="right">{grouped(pointCount(found))}</Table.Td>
              </Table.Tr>
            );
          })}
        </Table.Tbody>
      </Table>
    </Panel>
  );
}
