import { Button, Table } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link, Navigate, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import { ago, bytes, DASH, grouped, moment } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";

export function DatasetsPage() {
  const { data, error, isPending, refetch } = useQuery(queries.datasets);
  const [search] = useSearchParams();
  const list = data?.data ?? [];
  const versionId = search.get("version");
  const owner = versionId === null ? undefined : list.find((dataset) => dataset.versions.some((version) => version.id === versionId));
  if (owner !== undefined) return <Navigate to={`/datasets/${owner.id}?version=${versionId}`} replace />;
  return (
    <>
      <PageHeader title="Datasets" aside={<Button component={Link} to="/datasets/new" leftSection={<IconPlus size={14} />}>Upload dataset</Button>}>
        A dataset has immutable versions. A run references one of them, such as name@3.
      </PageHeader>
      <ProblemNotice error={error} retry={() => void refetch()} />
      <Panel flush>
        {isPending ? <Waiting /> : data === undefined ? null : list.length === 0 ? (
          <Empty title="No datasets yet" action={<Button component={Link} to="/datasets/new">Upload dataset</Button>}>
            Upload a file with one prompt and its expected answer per row, and map its columns.
          </Empty>
        ) : (
          <Table className="tabular" data-testid="datasets">
            <Table.Thead>
              <Table.Tr><Table.Th>Name</Table.Th><Table.Th>Latest version</Table.Th><Table.Th ta="right">Rows</Table.Th><Table.Th>Splits</Table.Th><Table.Th ta="right">Size</Table.Th><Table.Th ta="right">Added</Table.Th></Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {list.map((dataset) => (
                <Table.Tr key={dataset.id}>
                  <Table.Td><Link to={`/datasets/${dataset.id}`} style={{ fontWeight: 580 }}>{dataset.name}</Link><div style={{ color: "var(--ink-faint)", fontSize: "0.75rem" }}>{dataset.description}</div></Table.Td>
                  <Table.Td>{dataset.latest?.ref ?? "no version"}</Table.Td>
                  <Table.Td ta="right">{grouped(dataset.latest?.rows)}</Table.Td>
                  <Table.Td><Splits splits={dataset.latest?.splits ?? {}} /></Table.Td>
                  <Table.Td ta="right">{bytes(dataset.latest?.bytes)}</Table.Td>
                  <Table.Td ta="right" title={moment(dataset.created_at)}>{ago(dataset.latest?.created_at ?? dataset.created_at)}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
      </Panel>
    </>
  );
}

const counts = (of: Record<string, number>) => Object.entries(of).map(([name, count]) => `${name} ${grouped(count)}`).join(", ");

/** Rows by split; with sources, each split on a line of its own with the rows of each source. */
export function Splits({ splits, sources = {} }: { splits: Record<string, number>; sources?: Record<string, Record<string, number>> }) {
  if (Object.keys(splits).length === 0) return DASH;
  if (Object.keys(sources).length === 0) return <span>{counts(splits)}</span>;
  return Object.entries(splits).map(([name, rows]) => <div key={name}>{name} {grouped(rows)}{sources[name] ? ` (${counts(sources[name])})` : ""}</div>);
}
