import { Select, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { CanonicalRow, Dataset, Version } from "../api/schema.d.ts";
import { grouped } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { RowsTable, textOf } from "./rows-table.tsx";
import classes from "./statistics.module.css";
import { comparable, diffText } from "./version-text.ts";

/** What changed between two versions: counts, splits, and the first rows of each kind. */
export function DiffPanel({ dataset, version }: { dataset: Dataset; version: Version }) {
  const [search, setSearch] = useSearchParams();
  const others = comparable(dataset.versions, version);
  const from = others.find(({ ref }) => ref === search.get("from")) ?? others[0];
  const { data, error, isPending, refetch } = useQuery({ ...queries.datasetDiff(version.id, from?.id ?? ""), enabled: from !== undefined });
  if (from === undefined) return <Panel><Empty title="Only one version">Upload another file, or derive new splits, to compare two versions.</Empty></Panel>;
  return (
    <div style={{ display: "grid", gap: 12 }}>
      <Panel
        title={`From ${from.ref} to ${version.ref}`}
        aside={<Select aria-label="Compare with" w={180} allowDeselect={false} data={others.map(({ ref }) => ref)} value={from.ref} onChange={(value) => setSearch((old) => { const next = new URLSearchParams(old); next.set("from", value ?? ""); return next; }, { replace: true })} />}
      >
        <ProblemNotice error={error} retry={() => void refetch()} />
        {isPending ? <Waiting label="Comparing all rows" /> : data !== undefined && (
          <>
            <p className={classes.note} data-testid="difference">{diffText(data)} Rows are compared by their prompt.</p>
            <Table className="tabular">
              <Table.Thead><Table.Tr><Table.Th>Split</Table.Th><Table.Th ta="right">{from.ref}</Table.Th><Table.Th ta="right">{version.ref}</Table.Th></Table.Tr></Table.Thead>
              <Table.Tbody>{Object.entries(data.splits).map(([name, rows]) => <Table.Tr key={name}><Table.Td>{name}</Table.Td><Table.Td ta="right">{grouped(rows["from"])}</Table.Td><Table.Td ta="right">{grouped(rows["to"])}</Table.Td></Table.Tr>)}</Table.Tbody>
            </Table>
          </>
        )}
      </Panel>
      {data !== undefined && data.changed_rows.length > 0 && (
        <Panel title="Changed" aside={first(data.changed_rows.length, data.changed)}>
          {data.changed_rows.map((change, index) => <Change key={index} before={change["from"] as CanonicalRow} after={change["to"] as CanonicalRow} />)}
        </Panel>
      )}
      {data !== undefined && data.added_rows.length > 0 && <Panel title="Added" aside={first(data.added_rows.length, data.added)} flush><RowsTable rows={data.added_rows} order={["row", "messages", "answer"]} /></Panel>}
      {data !== undefined && data.removed_rows.length > 0 && <Panel title="Removed" aside={first(data.removed_rows.length, data.removed)} flush><RowsTable rows={data.removed_rows} order={["row", "messages", "answer"]} /></Panel>}
    </div>
  );
}

const first = (shown: number, all: number): string => (shown < all ? `the first ${shown} of ${grouped(all)}` : grouped(all));

const FIELDS = ["answer", "completion", "chosen", "rejected", "split", "source"] as const;

function fieldText(row: CanonicalRow, field: (typeof FIELDS)[number]): string | null {
  const value = row[field] ?? null;
  return Array.isArray(value) ? textOf(value) : value;
}

/** A prompt, and what is different below it in both versions. */
function Change({ before, after }: { before: CanonicalRow; after: CanonicalRow }) {
  const prompt = after.messages.map(({ content }) => content).join("\n").slice(0, 600);
  const fields = FIELDS.filter((field) => fieldText(before, field) !== fieldText(after, field));
  return (
    <div className={classes.change}>
      <pre style={{ gridColumn: "1 / -1" }}>{prompt}</pre>
      {fields.length === 0 && <span>Its rows are in other splits, or more or fewer.</span>}
      {fields.map((field) => [before, after].map((row, side) => <div key={`${field} ${side}`}><b>{field}, {side === 0 ? "before" : "after"}</b><pre>{fieldText(row, field) ?? "(none)"}</pre></div>))}
    </div>
  );
}
