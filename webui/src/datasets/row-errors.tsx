import { Table } from "@mantine/core";

import type { FieldProblem } from "../api/problem.ts";
import { words } from "../common/format.ts";
import classes from "./row-errors.module.css";
import { columnOf } from "./row-pointer.ts";

const MAX_SHOWN = 200;

/** Errors in rows: the column, the error and a message with the line of the file. */
export function RowErrors({ errors, summary, report }: { errors: FieldProblem[]; summary?: string; report?: string }) {
  if (errors.length === 0) return null;
  return (
    <div className={classes.errors} role="alert" data-testid="row-errors">
      <strong>{summary ?? "Some of these rows are invalid"}</strong>
      <Table verticalSpacing={3} mt={6}>
        <Table.Thead><Table.Tr><Table.Th w={150}>Column</Table.Th><Table.Th w={180}>Error</Table.Th><Table.Th>Message</Table.Th></Table.Tr></Table.Thead>
        <Table.Tbody>
          {errors.slice(0, MAX_SHOWN).map((error, index) => (
            <Table.Tr key={index}>
              <Table.Td className="mono">{columnOf(error.pointer)}</Table.Td>
              <Table.Td>{words(error.code)}</Table.Td>
              <Table.Td style={{ overflowWrap: "anywhere" }}>{error.message}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {errors.length > MAX_SHOWN && <p>and {errors.length - MAX_SHOWN} more</p>}
      {summary !== undefined && <p>Nothing was stored. Fix the rows in your file and upload it again, or map other columns.{report !== undefined && <> <a href={report} download>Download all errors (JSONL)</a></>}</p>}
    </div>
  );
}
