import "@mantine/core/styles/Tabs.css";
import { Button, Table, Tabs } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useParams, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { Dataset, Version } from "../api/schema.d.ts";
import "../common/card-table.css";
import { CopyId } from "../common/copy-id.tsx";
import { bytes, grouped, moment } from "../common/format.ts";
import { Empty } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { PendingPage } from "../common/pending-page.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { Aliases } from "./aliases.tsx";
import { ColumnsPanel } from "./columns-panel.tsx";
import { Splits } from "./datasets-page.tsx";
import { DiffPanel } from "./diff-panel.tsx";
import { RowsPanel } from "./rows-panel.tsx";
import { SplitsPanel } from "./splits-panel.tsx";
import { StatisticsPanel } from "./statistics-panel.tsx";
import { columnsText, originText } from "./version-text.ts";

const FIRST_VERSIONS = 10;

const TABS = { rows: "Rows", columns: "Columns", statistics: "Token lengths", splits: "Splits and leaks", compare: "Compare" } as const;

/** The versions of a dataset. The selected one has its rows, statistics, splits and differences below. */
export function DatasetPage() {
  const { datasetId = "" } = useParams();
  const { data: dataset, error, refetch } = useQuery(queries.dataset(datasetId));
  const [search, setSearch] = useSearchParams();
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  if (dataset === undefined) return <PendingPage title="Dataset" error={error} retry={refetch} />;
  const version = dataset.versions.find((entry) => entry.id === search.get("version")) ?? dataset.latest;
  const set = (name: string, value: string) => setSearch((old) => { const next = new URLSearchParams(old); next.set(name, value); return next; }, { replace: true });
  const tab = Object.keys(TABS).find((name) => name === search.get("tab")) ?? "rows";
  return (
    <>
      <PageHeader title={dataset.name} aside={readOnly === null && <Button component={Link} to={`/datasets/new?name=${encodeURIComponent(dataset.name)}`} leftSection={<IconPlus size={14} />}>Upload version</Button>}>
        {dataset.description}
      </PageHeader>
      <div style={{ display: "grid", gridTemplateColumns: "minmax(0, 1fr)", gap: 12 }}>
        <Panel title="Versions" flush><Versions dataset={dataset} selected={version} readOnly={readOnly !== null} onSelect={(id) => set("version", id)} /></Panel>
        {version !== null && version !== undefined && (
          <>
            <Aliases dataset={dataset} version={version} readOnly={readOnly} />
            <Tabs value={tab} onChange={(name) => set("tab", name ?? "rows")} keepMounted={false}>
              <Tabs.List mb={12}>{Object.entries(TABS).map(([name, label]) => <Tabs.Tab key={name} value={name}>{label}</Tabs.Tab>)}</Tabs.List>
              <Tabs.Panel value="rows"><RowsPanel key={version.id} version={version} /></Tabs.Panel>
              <Tabs.Panel value="columns"><ColumnsPanel key={version.id} version={version} /></Tabs.Panel>
              <Tabs.Panel value="statistics"><StatisticsPanel key={version.id} version={version} readOnly={readOnly} /></Tabs.Panel>
              <Tabs.Panel value="splits"><SplitsPanel key={version.id} version={version} readOnly={readOnly} onDerived={(made) => set("version", made.id)} /></Tabs.Panel>
              <Tabs.Panel value="compare"><DiffPanel key={version.id} dataset={dataset} version={version} /></Tabs.Panel>
            </Tabs>
          </>
        )}
      </div>
    </>
  );
}

function Versions({ dataset, selected, readOnly, onSelect }: { dataset: Dataset; selected: Version | null; readOnly: boolean; onSelect: (id: string) => void }) {
  const [isWhole, setWhole] = useState(false);
  if (dataset.versions.length === 0) return <Empty title="No versions yet">An upload with invalid rows does not create a version.</Empty>;
  const aliases = (number: number) => Object.entries(dataset.aliases).filter(([, at]) => at === number).map(([name]) => name);
  const shown = isWhole ? dataset.versions : dataset.versions.filter((entry, index) => index < FIRST_VERSIONS || entry.id === selected?.id);
  return (
    <>
    <Table className="tabular card-table" data-testid="versions">
      <Table.Thead>
        <Table.Tr><Table.Th>Version</Table.Th><Table.Th ta="right">Rows</Table.Th><Table.Th>Splits</Table.Th><Table.Th>Columns</Table.Th><Table.Th>Origin</Table.Th><Table.Th>SHA-256 of rows</Table.Th><Table.Th ta="right">Size</Table.Th><Table.Th>Created</Table.Th><Table.Td /></Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {shown.map((entry) => (
          <Table.Tr key={entry.id} bg={entry.id === selected?.id ? "var(--accent-soft)" : undefined} aria-current={entry.id === selected?.id || undefined}>
            <Table.Td>
              <Link to={`?version=${entry.id}`} onClick={(event) => { event.preventDefault(); onSelect(entry.id); }}>{entry.ref}</Link>
              {aliases(entry.number).map((name) => <div key={name} className="mono">@{name}</div>)}
            </Table.Td>
            <Table.Td data-label="Rows" ta="right">{grouped(entry.rows)}</Table.Td>
            <Table.Td data-label="Splits"><Splits splits={entry.splits} sources={entry.sources} /></Table.Td>
            <Table.Td data-label="Columns" className="mono">{columnsText(entry.mapping)}</Table.Td>
            <Table.Td data-label="Origin" style={{ maxWidth: 220, overflowWrap: "anywhere" }}>{originText(entry.derived)}</Table.Td>
            <Table.Td data-label="SHA-256"><CopyId id={entry.sha256} label={entry.sha256.slice(0, 12)} /></Table.Td>
            <Table.Td data-label="Size" ta="right">{bytes(entry.bytes)}</Table.Td>
            <Table.Td data-label="Created" style={{ color: "var(--ink-soft)" }}>{moment(entry.created_at)}</Table.Td>
            <Table.Td ta="right">{!readOnly && <Link to={`/runs/new?dataset=${encodeURIComponent(entry.ref)}`} aria-label={`Start a run with ${entry.ref}`}>Start a run</Link>}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
    {shown.length < dataset.versions.length && <Button variant="subtle" m={8} onClick={() => setWhole(true)}>Show all {grouped(dataset.versions.length)} versions</Button>}
    </>
  );
}
