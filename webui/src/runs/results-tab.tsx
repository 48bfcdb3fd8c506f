import { Table } from "@mantine/core";

import type { Run } from "../api/schema.d.ts";
import { DASH, duration, grouped, number, percent, words } from "../common/format.ts";
import { at, numberAt, object } from "../common/json.ts";
import { Empty } from "../common/notices.tsx";
import { Fact, Facts, Panel } from "../common/panel.tsx";
import stacked from "../common/stacked.module.css";
import { hasEnded } from "./ended.ts";
import { evaluationsOf, type EvaluationRow } from "./evaluations.ts";
import { useMetricsVersion } from "./live.ts";
import type { MetricsStore } from "./metrics-store.ts";

/** Evaluations before and after training, and the final measurements of each job. */
export function ResultsTab({ run, metrics }: { run: Run; metrics: MetricsStore }) {
  useMetricsVersion(metrics);
  const evaluation = object(run.summary["evaluation"]);
  const soFar = evaluation === null ? evaluationsOf(metrics) : [];
  const names = Object.keys(run.summary).filter((name) => name !== "evaluation").sort();
  if (evaluation === null && soFar.length === 0 && names.length === 0) {
    return (
      <Panel>
        <Empty title="No results yet">
          {hasEnded(run.status) ? "The run ended before any job reported its final measurements." : "Evaluation results and the final measurements of each job appear here, starting with the evaluation before training."}
        </Empty>
      </Panel>
    );
  }
  return (
    <div style={{ display: "grid", gap: 10 }}>
      {soFar.length > 0 && <EvaluationsSoFar rows={soFar} />}
      {evaluation !== null && <Evaluation evaluation={evaluation} />}
      {evaluation !== null && <AccuracyBySource evaluation={evaluation} />}
      {names.map((name) => (
        <Panel key={name} title={words(name)}>
          <Measurements value={run.summary[name]} />
        </Panel>
      ))}
    </div>
  );
}

/** Evaluations of a run whose jobs have not reported their final measurements. */
function EvaluationsSoFar({ rows }: { rows: EvaluationRow[] }) {
  return (
    <Panel title="Evaluations so far" aside="final measurements follow at the end of the run" flush>
      <Table className={`tabular ${stacked.stacked}`} data-testid="evaluations-so-far">
        <Table.Thead>
          <Table.Tr><Table.Th ta="right">Policy version</Table.Th><Table.Th ta="right">Greedy</Table.Th><Table.Th ta="right">Sampled</Table.Th><Table.Th ta="right">Mean tokens</Table.Th></Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map(({ version, greedy, sampled, meanTokens }) => (
            <Table.Tr key={version}><Table.Td data-label="Policy version" ta="right">{grouped(version)}</Table.Td><Table.Td data-label="Greedy" ta="right">{percent(greedy)}</Table.Td><Table.Td data-label="Sampled" ta="right">{percent(sampled)}</Table.Td><Table.Td data-label="Mean tokens" ta="right">{number(meanTokens, 1)}</Table.Td></Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Panel>
  );
}

const labelsOf = (evaluation: Record<string, unknown>) =>
  [...new Set(["start", ...Object.keys(evaluation).filter((key) => key !== "start" && key !== "end"), "end"])].filter((key) => object(evaluation[key]) !== null);

const titleOf = (label: string) => (label === "start" ? "Before" : label === "end" ? "After" : words(label));

/** Accuracy of each source of the evaluation's rows; nothing where rows have no source. */
function AccuracyBySource({ evaluation }: { evaluation: Record<string, unknown> }) {
  const labels = labelsOf(evaluation);
  const sources = [...new Set(labels.flatMap((label) => Object.keys(object(at(evaluation, label, "by_source")) ?? {})))];
  if (sources.length === 0) return null;
  const estimate = (label: string, source: string) => {
    const [value, low, high] = ["value", "low", "high"].map((name) => numberAt(evaluation, label, "by_source", source, name));
    return value === null ? DASH : `${percent(value!)} (${percent(low!)} to ${percent(high!)})`;
  };
  return (
    <Panel title="Accuracy by source" aside="with 95 % intervals" flush>
      <Table className={`tabular ${stacked.stacked}`} data-testid="accuracy-by-source">
        <Table.Thead>
          <Table.Tr><Table.Th>Source</Table.Th>{labels.map((label) => <Table.Th key={label} ta="right">{titleOf(label)}</Table.Th>)}</Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {sources.map((source) => (
            <Table.Tr key={source}>
              <Table.Td>{source}</Table.Td>
              {labels.map((label) => <Table.Td key={label} data-label={titleOf(label)} ta="right">{estimate(label, source)}</Table.Td>)}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Panel>
  );
}

function Evaluation({ evaluation }: { evaluation: Record<string, unknown> }) {
  const labels = labelsOf(evaluation);
  const gain = (name: string) => {
    const [before, after] = [numberAt(evaluation, "start", name), numberAt(evaluation, "end", name)];
    return before === null || after === null ? DASH : `${after >= before ? "+" : "−"}${(Math.abs(after - before) * 100).toFixed(1)} points`;
  };
  return (
    <Panel title="Evaluation on held-out prompts at a fixed policy version" flush>
      <Table className={`tabular ${stacked.stacked}`} data-testid="evaluation">
        <Table.Thead>
          <Table.Tr><Table.Th>Evaluation</Table.Th><Table.Th ta="right">Policy version</Table.Th><Table.Th ta="right">Prompts</Table.Th><Table.Th ta="right">Greedy</Table.Th><Table.Th ta="right">Sampled</Table.Th><Table.Th ta="right">Mean tokens</Table.Th></Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {labels.map((label) => (
            <Table.Tr key={label}>
              <Table.Td>{titleOf(label)}</Table.Td>
              <Table.Td data-label="Policy version" ta="right">{number(numberAt(evaluation, label, "version"))}</Table.Td>
              <Table.Td data-label="Prompts" ta="right">{grouped(numberAt(evaluation, label, "prompts"))}</Table.Td>
              <Table.Td data-label="Greedy" ta="right">{percent(numberAt(evaluation, label, "greedy"))}</Table.Td>
              <Table.Td data-label="Sampled" ta="right">{percent(numberAt(evaluation, label, "sampled"))}</Table.Td>
              <Table.Td data-label="Mean tokens" ta="right">{number(numberAt(evaluation, label, "mean_tokens"), 1)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Table.Tr><Table.Th>Change</Table.Th><Table.Td /><Table.Td /><Table.Td data-label="Greedy" ta="right" fw={700}>{gain("greedy")}</Table.Td><Table.Td data-label="Sampled" ta="right" fw={700}>{gain("sampled")}</Table.Td><Table.Td /></Table.Tr>
        </Table.Tfoot>
      </Table>
    </Panel>
  );
}

function formatMeasurement(name: string, value: unknown): string {
  if (typeof value !== "number") return value === null || value === undefined ? DASH : String(value);
  if (/frac|share|accuracy/.test(name)) return percent(value);
  if (/seconds/.test(name)) return duration(value);
  return number(value);
}

/** A nested object as a flat list of facts. The label of a fact is its full path. */
function Measurements({ value }: { value: unknown }) {
  const facts: [string, string][] = [];
  const walk = (path: string[], inner: unknown) => {
    const nested = object(inner);
    if (nested !== null && Object.keys(nested).length > 0 && Object.keys(nested).every((key) => /^\d+$/.test(key))) {
      facts.push([path.join(" · "), Object.entries(nested).map(([bucket, count]) => `${bucket}: ${formatMeasurement("", count)}`).join(", ")]);
    } else if (nested !== null) for (const [key, part] of Object.entries(nested)) walk([...path, key], part);
    else facts.push([path.join(" · "), Array.isArray(inner) ? inner.join(", ") : formatMeasurement(path.join("_"), inner)]);
  };
  walk([], value);
  return <Facts>{facts.map(([name, text]) => <Fact key={name} label={name.replaceAll("_", " ")}>{text}</Fact>)}</Facts>;
}
