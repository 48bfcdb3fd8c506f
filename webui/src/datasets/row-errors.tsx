import { Table } from "@mantine/core";

import type { FieldProblem } from "../api/problem.ts";
import { words } from "../common/format.ts";
import classes from "./row-errors.module.css";
import { columnOf } from "./row-pointer.ts";

const MOST_SHOWN = 200;

/** Faults of rows: which column, what is wrong; the message says on which line of the file. */
export function RowErrors({ errors, refused, report }: { errors: FieldProblem[]; refused?: string; report?: string }) {
  if (errors.length === 0) return null;
  return (
    <div className={classes.errors} role="alert" data-testid="row-errors">
      <strong>{refused === undefined ? "Some of these rows would be refused" : refused}</strong>
      <Table verticalSpacing={3} mt={6}>
        <Table.Thead><Table.Tr><Table.Th w={150}>Column</Table.Th><Table.Th w={180}>Fault</Table.Th><Table.Th>Message</Table.Th></Table.Tr></Table.Thead>
        <Table.Tbody>
          {errors.slice(0, MOST_SHOWN).map((error, index) => (
            <Table.Tr key={index}>
              <Table.Td className="mono">{columnOf(error.pointer)}</Table.Td>
              <Table.Td>{words(error.code)}</Table.Td>
              <Table.Td style={{ overflowWrap: "anywhere" }}>{error.message}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {errors.length > MOST_SHOWN && <p>and {errors.length - MOST_SHOWN} more</p>}
      {refused !== undefined && <p>Nothing was stored. Mend the rows in your file and drop it again, or map other columns.{report !== undefined && <> <a href={report} download>Every fault, as JSON lines</a></>}</p>}
    </div>
  );
}
