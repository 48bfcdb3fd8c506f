import { Table } from "@mantine/core";

function shown(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Rows as they are, a column for each key that any of them has. */
export function RowsTable({ rows }: { rows: Record<string, unknown>[] }) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return (
    <Table verticalSpacing={4}>
      <Table.Thead><Table.Tr>{columns.map((column) => <Table.Th key={column}>{column}</Table.Th>)}</Table.Tr></Table.Thead>
      <Table.Tbody>
        {rows.map((row, index) => (
          <Table.Tr key={index}>
            {columns.map((column) => (
              <Table.Td key={column} className="mono" style={{ maxWidth: 420, whiteSpace: "pre-wrap", overflowWrap: "anywhere", verticalAlign: "top", fontSize: "0.75rem" }}>
                {shown(row[column]).slice(0, 600)}
              </Table.Td>
            ))}
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
