import { Button, Table } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, Navigate, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import "../common/card-table.css";
import { ago, bytes, DASH, grouped, moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { PendingPage } from "../common/pending-page.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { datasetPages, datasetVersion } from "./dataset-queries.ts";

export function DatasetsPage() {
  const [search] = useSearchParams();
  const versionId = search.get("version");
  return versionId === null ? <DatasetList /> : <OwnerOfVersion key={versionId} id={versionId} />;
}

/** Leads to the page of the dataset that has this version. */
function OwnerOfVersion({ id }: { id: string }) {
  const { data, error, refetch } = useQuery(datasetVersion(id));
  if (data !== undefined) return <Navigate to={`/datasets/${data.dataset.id}?version=${id}`} replace />;
  return <PendingPage title="Datasets" error={error} retry={refetch} />;
}

function DatasetList() {
  const query = useInfiniteQuery(datasetPages);
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  return (
    <>
      <PageHeader title="Datasets" aside={readOnly === null && list.length > 0 && <Button component={Link} to="/datasets/new" leftSection={<IconPlus size={14} />}>Upload dataset</Button>}>
        A dataset has immutable versions. A run references one of them, such as name@3.
      </PageHeader>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {(query.isPending || query.data !== undefined) && (
        <Panel flush>
          {query.isPending ? <Waiting /> : list.length === 0 ? (
            <Empty title="No datasets yet" action={readOnly === null && <Button component={Link} to="/datasets/new">Upload dataset</Button>}>
              Upload a file with one prompt and its expected answer per row, and map its columns. The page Home adds a sample dataset to try.
            </Empty>
          ) : (
            <Table className="tabular card-table" data-testid="datasets">
              <Table.Thead>
                <Table.Tr><Table.Th>Name</Table.Th><Table.Th>Latest version</Table.Th><Table.Th ta="right">Rows</Table.Th><Table.Th>Splits</Table.Th><Table.Th ta="right">Size</Table.Th><Table.Th ta="right">Added</Table.Th></Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {list.map((dataset) => (
                  <Table.Tr key={dataset.id}>
                    <Table.Td style={{ overflowWrap: "anywhere" }}><Link to={`/datasets/${dataset.id}`} style={{ fontWeight: 580 }}>{dataset.name}</Link><div style={{ color: "var(--ink-faint)", fontSize: "0.75rem" }}>{dataset.description}</div></Table.Td>
                    <Table.Td data-label="Latest version" style={{ overflowWrap: "anywhere", maxWidth: 260 }}>{dataset.latest?.ref ?? "no version"}</Table.Td>
                    <Table.Td data-label="Rows" ta="right">{grouped(dataset.latest?.rows)}</Table.Td>
                    <Table.Td data-label="Splits"><Splits splits={dataset.latest?.splits ?? {}} /></Table.Td>
                    <Table.Td data-label="Size" ta="right" style={{ whiteSpace: "nowrap" }}>{bytes(dataset.latest?.bytes)}</Table.Td>
                    <Table.Td data-label="Added" ta="right" style={{ whiteSpace: "nowrap" }} title={moment(dataset.latest?.created_at ?? dataset.created_at)}>{ago(dataset.latest?.created_at ?? dataset.created_at)}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )}
          <More query={query} />
        </Panel>
      )}
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
