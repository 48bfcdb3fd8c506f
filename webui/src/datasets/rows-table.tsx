import { Table } from "@mantine/core";

import "../common/card-table.css";

type Message = { role: string; content: string };

/** A conversation with a line for each message. */
export const textOf = (messages: Message[]): string => messages.map(({ role, content }) => `${role}: ${content}`).join("\n");

function isConversation(value: unknown): value is Message[] {
  return Array.isArray(value) && value.length > 0 && value.every((entry: Partial<Message> | null) => typeof entry?.role === "string" && typeof entry.content === "string");
}

function cellText(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (isConversation(value)) return textOf(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

type Props = { rows: Record<string, unknown>[]; order?: string[] };

/** Raw rows with a column for each key of any row. Keys in `order` come first, in that order. */
export function RowsTable({ rows, order = [] }: Props) {
  const present = new Set(rows.flatMap((row) => Object.keys(row)));
  const columns = [...new Set([...order.filter((column) => present.has(column)), ...present])];
  return (
    <Table verticalSpacing={4} className="card-table">
      <Table.Thead><Table.Tr>{columns.map((column) => <Table.Th key={column}>{column}</Table.Th>)}</Table.Tr></Table.Thead>
      <Table.Tbody>
        {rows.map((row, index) => (
          <Table.Tr key={index}>
            {columns.map((column) => (
              <Table.Td key={column} data-label={column} className="mono" style={{ maxWidth: 420, whiteSpace: "pre-wrap", overflowWrap: "anywhere", verticalAlign: "top", fontSize: "0.75rem" }}>
                {cellText(row[column]).slice(0, 600)}
              </Table.Td>
            ))}
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
