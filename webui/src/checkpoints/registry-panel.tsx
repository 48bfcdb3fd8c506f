import { ActionIcon, Button, Menu, SegmentedControl, Select, Table, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconBookmark, IconChevronRight, IconDots, IconDownload, IconMessageCircle, IconPlus } from "@tabler/icons-react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link, useSearchParams } from "react-router";

import { checkpointPage } from "../api/checkpoint-queries.ts";
import { urlOf } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Alias, Checkpoint } from "../api/schema.d.ts";
import "../common/card-table.css";
import { bytes } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useNow } from "../common/use-now.ts";
import type { AliasDialog } from "./alias-dialogs.tsx";
import { Age, AliasNames, CheckpointMetrics, CheckpointName } from "./checkpoint-cells.tsx";
import { isFiltered, listQuery, withCursor, withFilter } from "./checkpoint-list-view.ts";
import classes from "./checkpoints-page.module.css";

const STATES = [{ value: "", label: "All" }, { value: "STORED", label: "Stored" }, { value: "LOCAL", label: "On node" }, { value: "DELETED", label: "Deleted" }];
const KINDS = [{ value: "training", label: "Training states" }, { value: "weights", label: "Weights only" }];
const SEARCH_MILLISECONDS = 250;
const REFETCH_MILLISECONDS = 15_000;

type Props = { aliases: Alias[]; showDialog: (dialog: AliasDialog) => void };

export function RegistryPanel({ aliases, showDialog }: Props) {
  const [search, setSearch] = useSearchParams();
  const query = useQuery({ ...checkpointPage(listQuery(search)), placeholderData: keepPreviousData, refetchInterval: REFETCH_MILLISECONDS });
  const page = query.data;
  return (
    <Panel flush>
      <Filters aliases={aliases} />
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.isPending ? <Waiting /> : page === undefined ? null : page.data.length === 0 ? <NoCheckpoints filtered={isFiltered(search)} later={search.has("cursor")} /> : (
        <>
          <Rows checkpoints={page.data} busy={query.isPlaceholderData} showDialog={showDialog} />
          <div className={classes.foot}>
            <span>{page.data.length} {page.data.length === 1 ? "checkpoint" : "checkpoints"}{page.has_more ? ", older ones on the next page" : ""}</span>
            <span>
              {search.has("cursor") && <Button variant="default" onClick={() => setSearch(withCursor(search, null))}>Newest</Button>}
              {page.has_more && <Button variant="default" rightSection={<IconChevronRight size={13} />} loading={query.isPlaceholderData} onClick={() => setSearch(withCursor(search, page.next_cursor))}>Older</Button>}
            </span>
          </div>
        </>
      )}
    </Panel>
  );
}

function Filters({ aliases }: { aliases: Alias[] }) {
  const [search, setSearch] = useSearchParams();
  const filter = listQuery(search);
  const set = (name: Parameters<typeof withFilter>[1], value: string) => setSearch((old) => withFilter(old, name, value), { replace: true });
  const names = new Set([...aliases.map(({ name }) => name), ...(filter.alias === undefined ? [] : [filter.alias])]);
  return (
    <div className={classes.tools}>
      <div className={classes.states}>
        <SegmentedControl aria-label="State" value={filter.state ?? ""} onChange={(value) => set("state", value)} data={STATES} />
      </div>
      <RunSearch run={filter.run ?? ""} onSearch={(run) => set("run", run)} />
      <Select className={classes.choice} aria-label="Kind" placeholder="Any kind" clearable data={KINDS} value={filter.kind ?? null} onChange={(value) => set("kind", value ?? "")} />
      <Select className={classes.choice} aria-label="Alias" placeholder="Any alias" clearable disabled={names.size === 0} data={[...names]} value={filter.alias ?? null} onChange={(value) => set("alias", value ?? "")} />
    </div>
  );
}

/** What is typed stays in the field; the URL follows when the keys rest. */
function RunSearch({ run, onSearch }: { run: string; onSearch: (run: string) => void }) {
  const [typed, setTyped] = useState(run);
  useEffect(() => setTyped(run), [run]);
  const search = useDebouncedCallback(onSearch, SEARCH_MILLISECONDS);
  return (
    <TextInput
      className={classes.run} type="search" aria-label="Run" placeholder="Run: name or ID" value={typed} data-search
      onChange={(event) => { setTyped(event.currentTarget.value); search(event.currentTarget.value.trim()); }}
    />
  );
}

function Rows({ checkpoints, busy, showDialog }: { checkpoints: Checkpoint[]; busy: boolean; showDialog: (dialog: AliasDialog) => void }) {
  const now = useNow(30_000);
  return (
    <Table className={`tabular card-table ${classes.table} ${busy ? classes.dimmed : ""}`} data-testid="checkpoints" aria-busy={busy}>
      <Table.Thead>
        <Table.Tr><Table.Th>Checkpoint</Table.Th><Table.Th>State</Table.Th><Table.Th>Metrics</Table.Th><Table.Th ta="right">Size</Table.Th><Table.Th ta="right">Age</Table.Th><Table.Th><span className="visually-hidden">Actions</span></Table.Th></Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {checkpoints.map((checkpoint) => (
          <Table.Tr key={checkpoint.id} data-checkpoint={checkpoint.id}>
            <Table.Td className={classes.first}>
              <CheckpointName checkpoint={checkpoint} />
              <div className={classes.sub}>{checkpoint.kind} <AliasNames names={checkpoint.aliases} /></div>
            </Table.Td>
            <Table.Td data-label="State"><StatusBadge status={checkpoint.state} /></Table.Td>
            <Table.Td data-label="Metrics"><CheckpointMetrics metrics={checkpoint.metrics} /></Table.Td>
            <Table.Td data-label="Size" ta="right">{bytes(checkpoint.bytes)}</Table.Td>
            <Table.Td data-label="Age" ta="right" c="dimmed"><Age at={checkpoint.created_at} now={now} /></Table.Td>
            <Table.Td ta="right"><RowMenu checkpoint={checkpoint} showDialog={showDialog} /></Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function RowMenu({ checkpoint, showDialog }: { checkpoint: Checkpoint; showDialog: (dialog: AliasDialog) => void }) {
  const scopes = useQuery(queries.me).data?.scopes ?? [];
  if (checkpoint.state === "DELETED") return null;
  const isStored = checkpoint.state === "STORED";
  const mayRun = scopes.includes("runs:write");
  const maySet = scopes.includes("checkpoints:write");
  if (!isStored && !maySet) return null;
  return (
    <Menu position="bottom-end" width={210}>
      <Menu.Target><ActionIcon variant="subtle" color="gray" aria-label={`Actions on ${checkpoint.run.name}, step ${checkpoint.step}`}><IconDots size={15} /></ActionIcon></Menu.Target>
      <Menu.Dropdown>
        {maySet && <Menu.Item leftSection={<IconBookmark size={14} />} onClick={() => showDialog({ kind: "set", name: "", checkpoint: checkpoint.id })}>Set an alias</Menu.Item>}
        {isStored && mayRun && <Menu.Item leftSection={<IconPlus size={14} />} component={Link} to={`/runs/new?checkpoint=${checkpoint.id}&from=${checkpoint.run.id}`}>Start a run from it</Menu.Item>}
        {isStored && mayRun && <Menu.Item leftSection={<IconMessageCircle size={14} />} component={Link} to={`/playground?checkpoint=${checkpoint.id}`}>Open in the playground</Menu.Item>}
        {isStored && <Menu.Item leftSection={<IconDownload size={14} />} component="a" href={urlOf("/api/v1/checkpoints/{checkpoint_id}/download", { checkpoint_id: checkpoint.id })} download>Download</Menu.Item>}
      </Menu.Dropdown>
    </Menu>
  );
}

function NoCheckpoints({ filtered, later }: { filtered: boolean; later: boolean }) {
  if (filtered || later) return <Empty title="No matching checkpoints" action={<Button variant="default" component={Link} to="/checkpoints">Clear filters</Button>}>No checkpoint of this project has this run, kind, state and alias.</Empty>;
  return (
    <Empty title="No checkpoints yet" action={<Button component={Link} to="/runs/new">Start a run</Button>}>
      A run saves a checkpoint every few train steps and at its end. Each is stored here with its metrics and what it was made from.
    </Empty>
  );
}
