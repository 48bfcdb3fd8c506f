import { Button, Table } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { Version } from "../api/schema.d.ts";
import { CopyId } from "../common/copy-id.tsx";
import { bytes, grouped, moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { Splits } from "./datasets-page.tsx";
import { RowsTable } from "./rows-table.tsx";

export function DatasetPage() {
  const { datasetId = "" } = useParams();
  const { data: dataset, error, isPending, refetch } = useQuery(queries.dataset(datasetId));
  const [search, setSearch] = useSearchParams();
  if (isPending) return <Waiting />;
  if (dataset === undefined) return <ProblemNotice error={error} retry={() => void refetch()} />;
  const version = dataset.versions.find((entry) => entry.id === search.get("version")) ?? dataset.latest;
  return (
    <>
      <PageHeader title={dataset.name} aside={<Button component={Link} to={`/datasets/new?name=${encodeURIComponent(dataset.name)}`} leftSection={<IconPlus size={14} />}>Upload version</Button>}>
        {dataset.description}
      </PageHeader>
      <div style={{ display: "grid", gap: 10 }}>
        <Panel title="Versions" flush>
          {dataset.versions.length === 0 ? <Empty title="No versions yet">An upload with invalid rows does not create a version.</Empty> : (
            <Table className="tabular" data-testid="versions">
              <Table.Thead>
                <Table.Tr><Table.Th>Version</Table.Th><Table.Th ta="right">Rows</Table.Th><Table.Th>Splits</Table.Th><Table.Th>Prompt and answer columns</Table.Th><Table.Th>SHA-256 of rows</Table.Th><Table.Th ta="right">Size</Table.Th><Table.Th>Created</Table.Th><Table.Td /></Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {dataset.versions.map((entry) => (
                  <Table.Tr key={entry.id} bg={entry.id === version?.id ? "var(--accent-soft)" : undefined}>
                    <Table.Td><Link to={`?version=${entry.id}`} onClick={(event) => { event.preventDefault(); setSearch({ version: entry.id }); }}>{entry.ref}</Link></Table.Td>
                    <Table.Td ta="right">{grouped(entry.rows)}</Table.Td>
                    <Table.Td><Splits splits={entry.splits} sources={entry.sources} /></Table.Td>
                    <Table.Td className="mono">{entry.mapping.prompt_column}, {entry.mapping.answer_column}</Table.Td>
                    <Table.Td><CopyId id={entry.sha256} label={entry.sha256.slice(0, 12)} /></Table.Td>
                    <Table.Td ta="right">{bytes(entry.bytes)}</Table.Td>
                    <Table.Td c="dimmed">{moment(entry.created_at)}</Table.Td>
                    <Table.Td ta="right"><Link to={`/runs/new?dataset=${encodeURIComponent(entry.ref)}`}>Start a run</Link></Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )}
        </Panel>
        {version !== null && version !== undefined && <Rows version={version} />}
      </div>
    </>
  );
}

function Rows({ version }: { version: Version }) {
  const query = useInfiniteQuery(queries.datasetRows(version.id));
  const rows = query.data?.pages.flatMap((page) => page.data) ?? [];
  return (
    <Panel title={`Rows of ${version.ref}`} aside={`${grouped(version.rows)} in total`} flush>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.isPending ? <Waiting /> : <RowsTable rows={rows} />}
      <More query={query} />
    </Panel>
  );
}
