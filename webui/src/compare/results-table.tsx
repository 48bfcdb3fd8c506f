import { ActionIcon, Table } from "@mantine/core";
import { IconPin, IconPinFilled, IconX } from "@tabler/icons-react";
import { Link } from "react-router";

import { DASH, grouped } from "../common/format.ts";
import { Panel } from "../common/panel.tsx";
import { useNow } from "../common/use-now.ts";
import stacked from "../common/stacked.module.css";
import { LineSample } from "../charts/line-sample.tsx";
import { RunStatus } from "../runs/run-status.tsx";
import classes from "./compare-page.module.css";
import { differenceOf, HEADLINES, rewardOf, type Facts } from "./headline.ts";
import { modeOf } from "./spec-diff.ts";
import { useLiveVersion, type ComparedRun } from "./use-compared-runs.ts";

type Props = { runs: readonly ComparedRun[]; baseline: string | null; onBaseline: (id: string) => void; onRemove: (id: string) => void };

/** Headline results, one row per run, the baseline first. Columns without a value of any run are left out. */
export function ResultsTable({ runs, baseline, onBaseline, onRemove }: Props) {
  useLiveVersion(runs);
  const now = useNow(2_000);
  const facts = new Map(runs.map(({ id, run, live, clock }): [string, Facts] => [id, { run, metrics: live.store, clock, now }]));
  const base = baseline === null ? undefined : facts.get(baseline);
  const target = base === undefined ? null : rewardOf(base);
  const columns = HEADLINES.filter(({ value }) => [...facts.values()].some((one) => value(one, target) !== null));
  const ordered = [...runs].sort((a, b) => Number(b.id === baseline) - Number(a.id === baseline));
  return (
    <Panel title="Results" aside={runs.length > 1 ? "with differences to the baseline" : undefined} flush>
      <Table horizontalSpacing={8} className={`tabular ${classes.results} ${stacked.stacked}`} data-testid="results">
        <Table.Thead>
          <Table.Tr>
            <Table.Th className={classes.sticky}>Run</Table.Th>
            <Table.Th ta="right" title="Train steps done, of those planned">Train steps</Table.Th>
            {columns.map(({ id, label, help }) => <Table.Th key={id} ta="right" title={help}>{label}</Table.Th>)}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {ordered.map(({ id, run, color, dashed }) => {
            const isBaseline = id === baseline;
            const mode = modeOf(run);
            return (
              <Table.Tr key={id} data-run={id} data-baseline={isBaseline}>
                <Table.Th scope="row" className={classes.sticky}>
                  <div className={classes.run}>
                    <LineSample color={color} dashed={dashed} width={20} />
                    <div className={classes.names}>
                      <div className={classes.nameLine}><Link to={`/runs/${id}`} className={classes.name} title={run.name}>{run.name}</Link></div>
                      <div className={classes.sub}>{isBaseline && runs.length > 1 && <strong>Baseline</strong>}{mode !== null && <span data-testid="mode">{mode.label}</span>}<RunStatus run={run} /></div>
                    </div>
                    {runs.length > 1 && (
                      <ActionIcon variant="subtle" color={isBaseline ? undefined : "gray"} size={24} aria-pressed={isBaseline} aria-label={`Use ${run.name} as the baseline`} title={isBaseline ? "Baseline of the differences" : "Use as the baseline"} onClick={() => onBaseline(id)}>
                        {isBaseline ? <IconPinFilled size={14} /> : <IconPin size={14} />}
                      </ActionIcon>
                    )}
                    <ActionIcon variant="subtle" color="gray" size={24} aria-label={`Remove ${run.name} from the comparison`} title="Remove from the comparison" onClick={() => onRemove(id)}><IconX size={14} /></ActionIcon>
                  </div>
                </Table.Th>
                <Table.Td ta="right" data-label="Train steps">{run.total_train_steps > 0 ? <span>{grouped(run.train_step)} <span className={classes.faint}>of {grouped(run.total_train_steps)}</span></span> : DASH}</Table.Td>
                {columns.map((column) => {
                  const value = column.value(facts.get(id)!, target);
                  const difference = isBaseline || base === undefined ? null : differenceOf(column, value, column.value(base, target));
                  return (
                    <Table.Td key={column.id} ta="right" data-label={column.label} data-column={column.id} data-value={value ?? ""}>
                      <div>
                        <div>{value === null ? DASH : column.format(value)}</div>
                        {difference !== null && <div className={classes.difference} data-tone={difference.tone} title={`${difference.text} ${difference.words}`}>{difference.text}<span className="visually-hidden"> {difference.words}</span></div>}
                      </div>
                    </Table.Td>
                  );
                })}
              </Table.Tr>
            );
          })}
        </Table.Tbody>
      </Table>
    </Panel>
  );
}
