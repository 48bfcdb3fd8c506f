import "@mantine/core/styles/Switch.css";
import { Button, Group, Modal, Switch, Table } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { patch } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import { pools as poolsQuery } from "../api/team-queries.ts";
import type { Me, Pool, PoolSettings } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { bytes, DASH, grouped } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { may } from "../common/permission.ts";
import { useDialog } from "../common/use-dialog.ts";
import { AddNode } from "../pool/add-node.tsx";
import classes from "./admin.module.css";
import { deviceRows } from "./devices.ts";
import { PoolAdmins } from "./pool-admins.tsx";
import { PoolPrices } from "./pool-prices.tsx";
import { PoolTeams } from "./pool-teams.tsx";

type Setting = "all_teams" | "trainer_code";
type Dialog = "node" | Setting;

/** Everything about one pool but its nodes and queue, which are on the page Pool. */
export function PoolDetail({ me, settings }: { me: Me; settings: PoolSettings }) {
  const { data: pool, error, refetch } = useQuery(queries.pool(settings.name));
  const { shown, show, close } = useDialog<Dialog>();
  const isInstallationAdmin = may(me, "installation:admin");
  return (
    <>
      <div className={classes.tools}>
        <h2 className={classes.head}>Pool {settings.name}</h2>
        <Group gap={12}>
          <Link className={classes.link} to={`/pool?pool=${encodeURIComponent(settings.name)}`}>Nodes, slots and queue</Link>
          <Button variant="default" onClick={() => show("node")} leftSection={<IconPlus size={14} />}>Add a node</Button>
        </Group>
      </div>
      <PoolTeams me={me} settings={settings} />
      <div className={classes.pair}>
        <div className={classes.stack}>
          <Panel title="Devices" flush>
            <ProblemNotice error={error} retry={() => void refetch()} />
            {pool === undefined ? error === null && <Waiting label="Loading devices" /> : <Devices pool={pool} />}
          </Panel>
          {pool !== undefined && <PoolPrices pool={pool} />}
          <PoolAdmins me={me} pool={settings.name} />
        </div>
        <Panel title="Settings">
          <div className={classes.fields}>
            <Switch label="Every team may use it" description={settings.all_teams ? "Also teams that are created later." : "Only the teams bound to it."} checked={settings.all_teams} disabled={!isInstallationAdmin} onChange={() => show("all_teams")} />
            <Switch label="Uploaded losses are allowed" description="They run inside the trainer, without a sandbox, with its rights on the node." checked={settings.trainer_code} disabled={!isInstallationAdmin} onChange={() => show("trainer_code")} />
            {!isInstallationAdmin && <span className={classes.soft}>Admins of the installation change these, bind teams and appoint admins.</span>}
          </div>
        </Panel>
      </div>
      {shown === "node" && <Modal opened onClose={close} title={`Add a node to ${settings.name}`} size="lg"><AddNode pool={settings.name} /></Modal>}
      {(shown === "all_teams" || shown === "trainer_code") && <ChangeSetting settings={settings} setting={shown} onClose={close} />}
    </>
  );
}

const EFFECTS: Record<Setting, { on: [string, string]; off: [string, string] }> = {
  all_teams: {
    on: ["Open to every team", "Runs of every team may be scheduled on its nodes, also of teams that are created later. The nodes then see their data and secrets."],
    off: ["Close to other teams", "Only the teams bound to the pool keep it. Runs of the others save a checkpoint and return to the queue, where they wait; their playgrounds and reward tests end."],
  },
  trainer_code: {
    on: ["Allow uploaded losses", "Anyone who may start runs here can bring code that runs inside the trainer, without a sandbox. It can read the secrets that allow the trainer."],
    off: ["Forbid uploaded losses", "New runs with a loss of their own are rejected in this pool."],
  },
};

function ChangeSetting({ settings, setting, onClose }: { settings: PoolSettings; setting: Setting; onClose: () => void }) {
  const [action, effect] = EFFECTS[setting][settings[setting] ? "off" : "on"];
  return (
    <Confirm title={`${action}?`} action={action} changes={[poolsQuery.queryKey, ["pool"]]} onClose={onClose} run={() => patch("/api/v1/pools/{pool_name}", { path: { pool_name: settings.name }, body: { [setting]: !settings[setting] } })}>
      {effect}
    </Confirm>
  );
}

function Devices({ pool }: { pool: Pool }) {
  const rows = deviceRows(pool.slots);
  if (rows.length === 0) return <p className={classes.note}>No slots yet. A node adds its GPUs as slots when it joins, or CPU slots if it has no GPU.</p>;
  return (
    <Table className="tabular" data-testid="devices">
      <Table.Thead><Table.Tr><Table.Th>Device</Table.Th><Table.Th ta="right">Nodes</Table.Th><Table.Th ta="right">Slots</Table.Th><Table.Th ta="right">In use</Table.Th><Table.Th ta="right">Unhealthy</Table.Th><Table.Th ta="right" className={classes.wide}>Memory each</Table.Th></Table.Tr></Table.Thead>
      <Table.Tbody>
        {rows.map((row) => (
          <Table.Tr key={row.key}>
            <Table.Td>{row.model}<div className={classes.soft}>{row.device}</div></Table.Td>
            <Table.Td ta="right">{grouped(row.nodes)}</Table.Td>
            <Table.Td ta="right">{grouped(row.slots)}</Table.Td>
            <Table.Td ta="right">{grouped(row.inUse)}</Table.Td>
            <Table.Td ta="right">{grouped(row.unhealthy)}</Table.Td>
            <Table.Td ta="right" className={classes.wide}>{row.memoryBytes === 0 ? DASH : bytes(row.memoryBytes)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
