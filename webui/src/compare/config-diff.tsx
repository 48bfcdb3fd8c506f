import { Table } from "@mantine/core";
import { Fragment } from "react";

import { LineSample } from "../charts/line-sample.tsx";
import { Panel } from "../common/panel.tsx";
import stacked from "../common/stacked.module.css";
import { SPEC_FIELDS } from "../start/spec-schema.ts";
import classes from "./compare-page.module.css";
import type { DiffRow } from "./spec-diff.ts";
import type { ComparedRun } from "./use-compared-runs.ts";

const DESCRIPTIONS = new Map(SPEC_FIELDS.map(({ path, description }) => [path.join("."), description]));

/** The fields in which the specs differ, by section. Values that differ from the baseline's stand out. */
export function ConfigDiff({ runs, rows, baseline }: { runs: readonly ComparedRun[]; rows: readonly DiffRow[]; baseline: string | null }) {
  const base = runs.findIndex(({ id }) => id === baseline);
  const sections = [...new Set(rows.map(({ section }) => section))];
  if (runs.length < 2) return null;
  return (
    <Panel title="Settings that differ" aside={rows.length === 0 ? undefined : `${rows.length} ${rows.length === 1 ? "field" : "fields"} of the resolved specs`} flush className={classes.diff}>
      {rows.length === 0 ? <p className={classes.same}>The resolved specs are the same in every field but name and notes.</p> : (
        <Table data-testid="config-diff" className={stacked.stacked}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th className={classes.sticky}>Field</Table.Th>
              {runs.map(({ id, run, color, dashed }) => (
                <Table.Th key={id}><span className={classes.column} title={run.name}><LineSample color={color} dashed={dashed} /> <span>{run.name}</span></span></Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {sections.map((section) => (
              <Fragment key={section}>
                <Table.Tr><Table.Th scope="colgroup" colSpan={runs.length + 1} className={classes.section}>{section}</Table.Th></Table.Tr>
                {rows.filter((row) => row.section === section).map(({ path, field, cells }) => (
                  <Table.Tr key={path} data-path={path}>
                    <Table.Th scope="row" className={classes.sticky} title={DESCRIPTIONS.get(path)}><code className="mono">{field}</code></Table.Th>
                    {cells.map((cell, index) => (
                      <Table.Td key={runs[index]!.id} data-label={runs[index]!.run.name} className={classes.value} data-differs={base !== -1 && cell !== cells[base]} title={cell}>{cell}</Table.Td>
                    ))}
                  </Table.Tr>
                ))}
              </Fragment>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Panel>
  );
}
