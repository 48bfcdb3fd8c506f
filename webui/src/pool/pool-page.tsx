import { Button, Code, CopyButton, Group, Menu, Modal, NumberInput, Select, Table, Text, Tooltip } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconDots, IconPlus, IconTrash } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";

import { post, put, remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Node, Pool, Quota, Slot } from "../api/schema.d.ts";
import { ago, grouped, moment } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useNow } from "../common/use-now.ts";
import { useTopic } from "../stream/stream.ts";
import classes from "./pool-page.module.css";

export function PoolPage() {
  const [search, setSearch] = useSearchParams();
  const { data: pool, error, isPending, refetch } = useQuery(queries.pool(search.get("pool") ?? undefined));
  const [isOpen, { open, close }] = useDisclosure(false);
  useTopic("pool", () => void refetch(), () => void refetch());
  if (isPending) return <Waiting />;
  if (pool === undefined) return <ProblemNotice error={error} retry={() => void refetch()} />;
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
            <Managed pool={pool}><Button disabled={!pool.may_manage} onClick={open} leftSection={<IconPlus size={14} />}>Add a node</Button></Managed>
          </Group>
        }
      >
        {grouped(held)} of {grouped(pool.slots.length)} slots held on {grouped(pool.nodes.length)} node{pool.nodes.length === 1 ? "" : "s"}; {pool.queue.length === 0 ? "nobody waits" : `${grouped(pool.queue.length)} waiting`}.
      </PageHeader>
      <ProblemNotice error={error} />
      <div className={classes.page}>
        <Slots pool={pool} />
        <Queue pool={pool} />
        <div className={classes.pair}>
          <Nodes pool={pool} />
          {pool.may_manage ? <Quotas pool={pool} /> : <OwnQuota pool={pool} />}
        </div>
      </div>
      <Modal opened={isOpen} onClose={close} title="Add a node" size="lg"><AddNode pool={pool.name} /></Modal>
    </>
  );
}

/** What only those who manage the pool may do: for others it is disabled, and says why. */
function Managed({ pool, children }: { pool: Pool; children: React.ReactNode }) {
  if (pool.may_manage) return <>{children}</>;
  return <Tooltip label={pool.blocked_reason} multiline w={320}><span>{children}</span></Tooltip>;
}

/** Every slot of the pool as a tile, by node: at a glance what is free and who holds the rest. */
function Slots({ pool }: { pool: Pool }) {
  if (pool.slots.length === 0) {
    return <Panel title="Slots"><Empty title="No slot yet">A node brings its GPUs, or CPU slots where it has none, when its agent enrolls.</Empty></Panel>;
  }
  return (
    <Panel title="Slots">
      {pool.nodes.map((node) => (
        <div key={node.id} className={classes.row}>
          <div className={classes.node}><strong>{node.name}</strong><StatusBadge status={node.status} /></div>
          <div className={classes.tiles}>{pool.slots.filter((slot) => slot.node.id === node.id).map((slot) => <Tile key={slot.id} slot={slot} />)}</div>
        </div>
      ))}
    </Panel>
  );
}

function Tile({ slot }: { slot: Slot }) {
  const holder = slot.held_by;
  const content = (
    <>
      <span className={classes.device}>{slot.name}<StatusBadge status={slot.state} /></span>
      <span className={classes.holder}>{holder === null ? slot.model : holder.run_name}</span>
      <span className={classes.job}>{holder === null ? " " : holder.job}</span>
    </>
  );
  return (
    <Tooltip label={holder === null ? `${slot.name}, ${slot.model}` : `${slot.name}, ${slot.model}: held by ${holder.job} of ${holder.run_name}`}>
      {holder === null
        ? <div className={classes.tile} data-state={slot.state}>{content}</div>
        : <Link to={`/runs/${holder.run_id}`} className={classes.tile} data-state={slot.state}>{content}</Link>}
    </Tooltip>
  );
}

function Queue({ pool }: { pool: Pool }) {
  const now = useNow(10_000);
  return (
    <Panel title="Queue" aside="highest priority first, then the oldest" flush>
      {pool.queue.length === 0 ? <Empty title="Nobody waits">A run that does not fit at once is listed here with the reason why.</Empty> : (
        <Table className="tabular" data-testid="queue">
          <Table.Thead><Table.Tr><Table.Th w={50}>Place</Table.Th><Table.Th>Run</Table.Th><Table.Th ta="right">Priority</Table.Th><Table.Th ta="right">Slots</Table.Th><Table.Th>Why it waits</Table.Th><Table.Th ta="right">Waiting since</Table.Th></Table.Tr></Table.Thead>
          <Table.Tbody>
            {pool.queue.map((entry) => (
              <Table.Tr key={entry.run_id}>
                <Table.Td>{entry.position}</Table.Td>
                <Table.Td><Link to={`/runs/${entry.run_id}`}>{entry.name}</Link></Table.Td>
                <Table.Td ta="right">{entry.priority}</Table.Td>
                <Table.Td ta="right">{entry.slots_needed}</Table.Td>
                <Table.Td>{entry.why}</Table.Td>
                <Table.Td ta="right" title={moment(entry.submitted_at)}>{ago(entry.submitted_at, now)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Panel>
  );
}

/** For admins of the installation, who alone may; the control plane says what still uses the pool. */
function DeletePool({ pool }: { pool: Pool }) {
  const { data: me } = useQuery(queries.me);
  const [asked, { open, close }] = useDisclosure(false);
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
      <Button variant="default" onClick={open} leftSection={<IconTrash size={14} />}>Delete the pool</Button>
      <Modal opened={asked} onClose={close} title={`Delete pool ${pool.name}?`}>
        <Text size="sm" mb={16}>Its teams lose it, and its admins, quotas and join tokens are deleted. Runs that have ended stay. It is refused while the pool has nodes, or while runs or sweeps that have not ended name it.</Text>
        <ProblemNotice error={act.error} />
        <Group justify="flex-end" mt={12}><Button variant="default" onClick={close}>Keep it</Button><Button color="red" loading={act.isPending} onClick={() => act.mutate()}>Delete</Button></Group>
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
      <Text size="sm" mb={10}>From now on every request of {node.name} is refused. Its agent stops the jobs and ends, and the node leaves the pool for good.</Text>
      <Text size="sm" mb={10}>Its runs go back to the queue and on elsewhere, each from its last stored checkpoint: steps since then are done again. Drain the node first to lose none.</Text>
      <Text size="sm" mb={16}>The machine ca join again as a new node, with a new join token.</Text>
      <ProblemNotice error={act.error} />
      <Group justify="flex-end" mt={12}><Button variant="default" onClick={close}>Keep it</Button><Button color="red" loading={act.isPending} onClick={() => act.mutate()}>Revoke</Button></Group>
    </>
  );
}

type Verb = "cordon" | "uncordon" | "drain";

const ACTIONS: { verb: Verb; label: string; help: string; when: (status: string) => boolean }[] = [
  { verb: "cordon", label: "Cordon", help: "No new run is placed on it; what runs goes on", when: (status) => status === "READY" || status === "UNRESPONSIVE" },
  { verb: "drain", label: "Drain", help: "Cordon it, and end what runs at the next checkpoint", when: (status) => status === "READY" || status === "CORDONED" },
  { verb: "uncordon", label: "Uncordon", help: "New runs may be placed on it again", when: (status) => status === "CORDONED" || status === "DRAINING" || status === "DRAINED" },
];

function Nodes({ pool }: { pool: Pool }) {
  const now = useNow(5_000);
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: ({ node, verb }: { node: Node; verb: Verb }) => post(`/api/v1/pool/nodes/{node_id}/${verb}`, { path: { node_id: node.id } }),
    onSettled: () => void client.invalidateQueries({ queryKey: ["pool"] }),
  });
  const [leaving, setLeaving] = useState<Node | null>(null);
  const slotsOf = (node: Node) => pool.slots.filter((slot) => slot.node.id === node.id);
  return (
    <Panel title="Nodes" flush>
      <ProblemNotice error={act.error} />
      <Table className="tabular" data-testid="nodes">
        <Table.Thead><Table.Tr><Table.Th>Node</Table.Th><Table.Th>Status</Table.Th><Table.Th ta="right">Slots held</Table.Th><Table.Th ta="right">Heard from</Table.Th><Table.Th w={44} /></Table.Tr></Table.Thead>
        <Table.Tbody>
          {pool.nodes.map((node) => (
            <Table.Tr key={node.id}>
              <Table.Td fw={560}>{node.name}</Table.Td>
              <Table.Td><StatusBadge status={node.status} /></Table.Td>
              <Table.Td ta="right">{slotsOf(node).filter((slot) => slot.held_by !== null).length} of {slotsOf(node).length}</Table.Td>
              <Table.Td ta="right" title={moment(node.last_seen_at)}>{ago(node.last_seen_at, now)}</Table.Td>
              <Table.Td>
                {!pool.may_manage && (
                  <Managed pool={pool}><Button variant="subtle" color="gray" px={6} disabled aria-label={`Actions on ${node.name}`}><IconDots size={15} /></Button></Managed>
                )}
                {pool.may_manage && <Menu position="bottom-end" width={270}>
                  <Menu.Target><Button variant="subtle" color="gray" px={6} aria-label={`Actions on ${node.name}`}><IconDots size={15} /></Button></Menu.Target>
                  <Menu.Dropdown>
                    {ACTIONS.filter(({ when }) => when(node.status)).map(({ verb, label, help }) => (
                      <Menu.Item key={verb} onClick={() => act.mutate({ node, verb })}>{label}<Text size="xs" c="dimmed">{help}</Text></Menu.Item>
                    ))}
                    <Menu.Divider />
                    <Menu.Item color="red" onClick={() => setLeaving(node)}>Revoke…<Text size="xs" c="dimmed">Refuse its credential from now on; it leaves the pool for good</Text></Menu.Item>
                  </Menu.Dropdown>
                </Menu>}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <Modal opened={leaving !== null} onClose={() => setLeaving(null)} title={`Revoke ${leaving?.name}?`}>
        {leaving !== null && <RevokeNode node={leaving} close={() => setLeaving(null)} />}
      </Modal>
    </Panel>
  );
}

function OwnQuota({ pool: { quota, blocked_reason } }: { pool: Pool }) {
  return (
    <Panel title="Quota">
      <Text size="sm" mb={10}>{quota.team.name} holds {grouped(quota.used_slots)} slot{quota.used_slots === 1 ? "" : "s"}{quota.limit_slots === null ? "; there is no limit." : ` of at most ${grouped(quota.limit_slots)}.`}</Text>
      <Text size="xs" c="dimmed">Quotas are set by those who manage the pool: {blocked_reason}.</Text>
    </Panel>
  );
}

/** Of every team that may use the pool. */
function Quotas({ pool }: { pool: Pool }) {
  const { data: teams, error } = useQuery(queries.poolTeams(pool.name));
  return (
    <Panel title="Quotas" flush>
      <ProblemNotice error={error} />
      <Table className="tabular" data-testid="quotas">
        <Table.Thead><Table.Tr><Table.Th>Team</Table.Th><Table.Th ta="right">Slots held</Table.Th><Table.Th>At most</Table.Th></Table.Tr></Table.Thead>
        <Table.Tbody>{teams?.map((quota) => <QuotaRow key={`${pool.name}/${quota.team.id}`} pool={pool} quota={quota} />)}</Table.Tbody>
      </Table>
    </Panel>
  );
}

function QuotaRow({ pool, quota }: { pool: Pool; quota: Quota }) {
  const [limit, setLimit] = useState<number | string>(quota.limit_slots ?? "");
  const client = useQueryClient();
  const wanted = limit === "" ? null : Number(limit);
  const save = useMutation({
    mutationFn: () =>
      put("/api/v1/pools/{pool_name}/teams/{team_id}/quota", { path: { pool_name: pool.name, team_id: quota.team.id }, body: { limit_slots: wanted } }),
    onSuccess: () => void client.invalidateQueries({ queryKey: ["pool"] }),
  });
  return (
    <Table.Tr>
      <Table.Td>{quota.team.name}<ProblemNotice error={save.error} /></Table.Td>
      <Table.Td ta="right">{grouped(quota.used_slots)}</Table.Td>
      <Table.Td>
        <Group gap={8} wrap="nowrap">
          <NumberInput aria-label={`Limit of ${quota.team.name}, slots`} placeholder="no limit" min={0} w={110} value={limit} onChange={setLimit} />
          <Button variant="default" loading={save.isPending} disabled={wanted === quota.limit_slots} onClick={() => save.mutate()}>{wanted === null ? "Lift" : "Set"}</Button>
        </Group>
      </Table.Td>
    </Table.Tr>
  );
}

function AddNode({ pool }: { pool: string }) {
  const make = useMutation({ mutationFn: () => post("/api/v1/pools/{pool_name}/join-tokens", { path: { pool_name: pool } }) });
  const command = make.data === undefined ? "" : joinCommand(make.data.token);
  return (
    <div style={{ display: "grid", gap: 12 }}>
      <ProblemNotice error={make.error} />
      <Text size="sm">A node joins pool {pool} with a token that works once, and sees the data and secrets of the jobs placed on it. Its agent only opens connections outwards, to this address. Type this on the node, in a checkout of Oolong after python3 manage.py setup --device cuda:</Text>
      {make.data === undefined ? <Group><Button loading={make.isPending} onClick={() => make.mutate()}>Make a join token</Button></Group> : (
        <>
          <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>{command}</Code>
          <Group justify="space-between">
            <Text size="xs" c="dimmed">Valid until {moment(make.data.expires_at)}</Text>
            <CopyButton value={command}>{({ copied, copy }) => <Button variant="default" onClick={copy}>{copied ? "Copied" : "Copy"}</Button>}</CopyButton>
          </Group>
        </>
      )}
    </div>
  );
}

/** The token goes through a file: a command line can be read by every user of the node. */
function joinCommand(token: string): string {
  return [
    `(umask 077; printf %s '${token}' > oolong-enroll)`,
    `.venv/bin/python -m gpu_agents.agent run --server ${window.location.origin} --data-dir /var/lib/oolong-agent \\`,
    '  --join-token-file oolong-enroll --device cuda --node-python "$(python3 manage.py node-python --device cuda)"',
  ].join("\n");
}
