import { Button, Group, Menu, Modal, Select, Table, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconDots, IconPlus, IconTrash } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Fragment, useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";

import { post, remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Node, Pool, QueueEntry } from "../api/schema.d.ts";
import { ago, grouped, moment } from "../common/format.ts";
import { Empty, ProblemNotice } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { PendingPage } from "../common/pending-page.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useNow } from "../common/use-now.ts";
import { useTopic } from "../stream/stream.ts";
import { AddNode } from "./add-node.tsx";
import { DrainNode, DrainRow } from "./drain-node.tsx";
import { isDrained } from "./drain.ts";
import { etaText } from "./eta.ts";
import classes from "./pool-page.module.css";
import { reservedSlots } from "./calendar.ts";
import { Calendar } from "./calendar-panel.tsx";
import { ProviderCell } from "./provider-cell.tsx";
import { QuarantineNode, QuarantineRow } from "./quarantine.tsx";
import { OwnQuota, Quotas } from "./quotas.tsx";
import { RequiresAdmin } from "./requires-admin.tsx";
import { SlotGrid } from "./slot-grid.tsx";
import { WhatIf } from "./what-if.tsx";

const READINGS_MILLISECONDS = 10_000; // readings of slots are not part of the stream

export function PoolPage() {
  const [search, setSearch] = useSearchParams();
  const { data: pool, error, refetch } = useQuery({ ...queries.pool(search.get("pool") ?? undefined), refetchInterval: READINGS_MILLISECONDS });
  const [isOpen, { open, close }] = useDisclosure(false);
  useTopic("pool", () => void refetch(), () => void refetch());
  if (pool === undefined) return <PendingPage title="Pool" error={error} retry={refetch} />;
  const held = pool.slots.filter((slot) => slot.held_by !== null).length;
  return (
    <>
      <PageHeader
        title={pool.pools.length > 1 ? `Pool ${pool.name}` : "Pool"}
        aside={
          <Group gap={8}>
            {pool.pools.length > 1 && (
              <Select aria-label="Pool" w={160} data={pool.pools} value={pool.name} allowDeselect={false}
                onChange={(name) => setSearch(name === null ? {} : { pool: name })} />
            )}
            <DeletePool pool={pool} />
            <RequiresAdmin pool={pool}><Button disabled={!pool.may_manage} onClick={open} leftSection={<IconPlus size={14} />}>Add a node</Button></RequiresAdmin>
          </Group>
        }
      >
        {grouped(held)} of {grouped(pool.slots.length)} slots in use on {grouped(pool.nodes.length)} node{pool.nodes.length === 1 ? "" : "s"}; {pool.queue.length === 0 ? "the queue is empty" : `${grouped(pool.queue.length)} waiting`}.
      </PageHeader>
      <ProblemNotice error={error} />
      <div className={classes.page}>
        <Slots pool={pool} />
        <Queue pool={pool} />
        <Calendar pool={pool} />
        <div className={classes.pair}>
          <Nodes pool={pool} />
          {pool.may_manage ? <Quotas pool={pool} /> : <OwnQuota pool={pool} />}
        </div>
      </div>
      <Modal opened={isOpen} onClose={close} title="Add a node" size="lg"><AddNode pool={pool.name} /></Modal>
    </>
  );
}

/** The slots of the pool as tiles, grouped by node. Each shows whether it is free or which run holds it. */
function Slots({ pool }: { pool: Pool }) {
  const { data: reservations } = useQuery(queries.reservations(pool.name));
  const reserved = reservedSlots(reservations ?? []);
  if (pool.slots.length === 0) {
    return <Panel title="Slots"><Empty title="No slots yet">A node adds its GPUs as slots when it joins, or CPU slots if it has no GPU.</Empty></Panel>;
  }
  return (
    <Panel title="Slots" aside={<Link to="/usage?by=run">Usage and cost</Link>}>
      <SlotGrid pool={pool} reserved={reserved} />
    </Panel>
  );
}

function Queue({ pool }: { pool: Pool }) {
  const now = useNow(10_000);
  const [asked, setAsked] = useState<QueueEntry | null>(null);
  return (
    <Panel title="Queue" aside="within nominal quota first, then priority, fair share, age" flush>
      {pool.queue.length === 0 ? <Empty title="The queue is empty">Runs that wait for slots are listed here with the reason and when they start.</Empty> : (
        <div className={classes.scroll}>
          <Table className="tabular" data-testid="queue">
            <Table.Thead><Table.Tr><Table.Th w={50}>Position</Table.Th><Table.Th miw={140}>Run</Table.Th><Table.Th ta="right">Priority</Table.Th><Table.Th ta="right">Slots</Table.Th><Table.Th miw={260}>Reason</Table.Th><Table.Th miw={130} w={150}>Starts</Table.Th><Table.Th ta="right" miw={90}>Waiting</Table.Th><Table.Td w={90} /></Table.Tr></Table.Thead>
            <Table.Tbody>
              {pool.queue.map((entry) => (
                <Table.Tr key={entry.position}>
                  <Table.Td>{entry.position}</Table.Td>
                  <Table.Td>{entry.run_id === "" ? <Text size="sm" c="dimmed">{entry.name}</Text> : <Link to={`/runs/${entry.run_id}`}>{entry.name}</Link>}</Table.Td>
                  <Table.Td ta="right">{entry.priority}</Table.Td>
                  <Table.Td ta="right">{entry.slots_needed}</Table.Td>
                  <Table.Td>{entry.why}</Table.Td>
                  <Table.Td><Starts entry={entry} now={now} /></Table.Td>
                  <Table.Td ta="right" title={moment(entry.submitted_at)}>{ago(entry.submitted_at, now)}</Table.Td>
                  <Table.Td>{entry.run_id !== "" && <Button variant="default" size="compact-sm" aria-label={`What if: ${entry.name}`} onClick={() => setAsked(entry)}>What if</Button>}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </div>
      )}
      <Modal opened={asked !== null} onClose={() => setAsked(null)} title={`When ${asked?.name} would start`} size="lg">
        {asked !== null && <WhatIf runId={asked.run_id} close={() => setAsked(null)} />}
      </Modal>
    </Panel>
  );
}

function Starts({ entry, now }: { entry: QueueEntry; now: number }) {
  const { text, detail } = etaText(entry.start, now);
  return <span title={`${moment(entry.start.p50)} (p50), ${moment(entry.start.p90)} (p90)`}>{text}<span className={classes.detail}>{detail}</span></span>;
}

/** Only for admins of the installation. If the pool is in use, the control plane says by what. */
function DeletePool({ pool }: { pool: Pool }) {
  const { data: me } = useQuery(queries.me);
  const [opened, { open, close }] = useDisclosure(false);
  const client = useQueryClient();
  const navigate = useNavigate();
  const act = useMutation({
    mutationFn: () => remove("/api/v1/pools/{pool_name}", { path: { pool_name: pool.name } }),
    onSuccess: async () => {
      close();
      await navigate("/pool");
      await client.invalidateQueries({ queryKey: ["pool"] });
    },
  });
  if (pool.name === "default" || !me?.scopes.includes("installation:admin")) return null;
  return (
    <>
      <Button variant="default" onClick={open} leftSection={<IconTrash size={14} />}>Delete pool</Button>
      <Modal opened={opened} onClose={close} title={`Delete pool ${pool.name}?`}>
        <Text size="sm" mb={16}>Its teams lose access, and its admins, quotas and join tokens are deleted. Runs that ended remain. You cannot delete a pool that has nodes, or that active runs or sweeps use.</Text>
        <ProblemNotice error={act.error} />
        <Group justify="flex-end" mt={12}><Button variant="default" onClick={close}>Cancel</Button><Button color="red" loading={act.isPending} onClick={() => act.mutate()}>Delete</Button></Group>
      </Modal>
    </>
  );
}

function RevokeNode({ node, close }: { node: Node; close: () => void }) {
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => post("/api/v1/pool/nodes/{node_id}/revoke", { path: { node_id: node.id } }),
    onSuccess: close,
    onSettled: () => void client.invalidateQueries({ queryKey: ["pool"] }),
  });
  return (
    <>
      <Text size="sm" mb={10}>Revoking rejects all further requests of {node.name}. Its agent stops all jobs and exits, and the node leaves the pool permanently.</Text>
      <Text size="sm" mb={10}>Its runs return to the queue and continue on other nodes, each from its last stored checkpoint. Steps since then are repeated. Drain the node first to avoid this.</Text>
      <Text size="sm" mb={16}>The machine can join again as a new node with a new join token.</Text>
      <ProblemNotice error={act.error} />
      <Group justify="flex-end" mt={12}><Button variant="default" onClick={close}>Cancel</Button><Button color="red" loading={act.isPending} onClick={() => act.mutate()}>Revoke</Button></Group>
    </>
  );
}

type Verb = "cordon" | "uncordon";

const ACTIONS: { verb: Verb; label: string; help: string; when: (status: string) => boolean }[] = [
  { verb: "cordon", label: "Cordon", help: "No new jobs start; running jobs continue", when: (status) => status === "READY" || status === "UNRESPONSIVE" },
  { verb: "uncordon", label: "Uncordon", help: "Allow new jobs to start", when: (status) => status === "CORDONED" },
];

function Nodes({ pool }: { pool: Pool }) {
  const now = useNow(5_000);
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: ({ node, verb }: { node: Node; verb: Verb }) => post(`/api/v1/pool/nodes/{node_id}/${verb}`, { path: { node_id: node.id } }),
    onSettled: () => void client.invalidateQueries({ queryKey: ["pool"] }),
  });
  const [revoking, setRevoking] = useState<Node | null>(null);
  const [draining, setDraining] = useState<Node | null>(null);
  const [quarantining, setQuarantining] = useState<Node | null>(null);
  const slotsOf = (node: Node) => pool.slots.filter((slot) => slot.node.id === node.id);
  return (
    <Panel title="Nodes" flush>
      <ProblemNotice error={act.error} />
      <Table className="tabular" data-testid="nodes">
        <Table.Thead><Table.Tr><Table.Th>Node</Table.Th><Table.Th>Provider</Table.Th><Table.Th>Status</Table.Th><Table.Th ta="right">Slots in use</Table.Th><Table.Th ta="right">Last seen</Table.Th><Table.Td w={44} /></Table.Tr></Table.Thead>
        <Table.Tbody>
          {pool.nodes.map((node) => (
            <Fragment key={node.id}>
              <Table.Tr>
                <Table.Td fw={560}>{node.name}{node.peer_network !== "" && <Text size="xs" c="dimmed" title="Runs on nodes of the same network can have engines here">Network {node.peer_network}</Text>}</Table.Td>
                <ProviderCell node={node} />
                <Table.Td><StatusBadge status={node.status} /></Table.Td>
                <Table.Td ta="right">{slotsOf(node).filter((slot) => slot.held_by !== null).length} of {slotsOf(node).length}</Table.Td>
                <Table.Td ta="right" title={moment(node.last_seen_at)}>{ago(node.last_seen_at, now)}</Table.Td>
                <Table.Td>
                  {!pool.may_manage && (
                    <RequiresAdmin pool={pool}><Button variant="subtle" color="gray" px={6} disabled aria-label={`Actions on ${node.name}`}><IconDots size={15} /></Button></RequiresAdmin>
                  )}
                  {pool.may_manage && <Menu position="bottom-end" width={270}>
                    <Menu.Target><Button variant="subtle" color="gray" px={6} aria-label={`Actions on ${node.name}`}><IconDots size={15} /></Button></Menu.Target>
                    <Menu.Dropdown>
                      {!isDrained(node, pool.leaving) && ACTIONS.filter(({ when }) => when(node.status)).map(({ verb, label, help }) => (
                        <Menu.Item key={verb} onClick={() => act.mutate({ node, verb })}>{label}<Text size="xs" c="dimmed">{help}</Text></Menu.Item>
                      ))}
                      {!isDrained(node, pool.leaving) && <Menu.Item onClick={() => setDraining(node)}>Drain…<Text size="xs" c="dimmed">Cordon it, and move its runs to other nodes</Text></Menu.Item>}
                      {node.quarantined_at === null && <Menu.Item onClick={() => setQuarantining(node)}>Quarantine…<Text size="xs" c="dimmed">Start no new jobs until it is released, with a reason that everybody sees</Text></Menu.Item>}
                      <Menu.Divider />
                      <Menu.Item color="red" onClick={() => setRevoking(node)}>Revoke…<Text size="xs" c="dimmed">Reject its credential and remove it from the pool permanently</Text></Menu.Item>
                    </Menu.Dropdown>
                  </Menu>}
                </Table.Td>
              </Table.Tr>
              <QuarantineRow node={node} pool={pool} columns={6} />
              <DrainRow node={node} pool={pool} columns={6} changeDeadline={() => setDraining(node)} />
            </Fragment>
          ))}
        </Table.Tbody>
      </Table>
      {quarantining !== null && <QuarantineNode node={quarantining} onClose={() => setQuarantining(null)} />}
      <Modal opened={draining !== null} onClose={() => setDraining(null)} title={`Drain ${draining?.name}`}>
        {draining !== null && <DrainNode node={draining} drained={isDrained(draining, pool.leaving)} close={() => setDraining(null)} />}
      </Modal>
      <Modal opened={revoking !== null} onClose={() => setRevoking(null)} title={`Revoke ${revoking?.name}?`}>
        {revoking !== null && <RevokeNode node={revoking} close={() => setRevoking(null)} />}
      </Modal>
    </Panel>
  );
}

