import { Button, Table } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";

import { post } from "../api/http.ts";
import { pools as poolsQuery } from "../api/team-queries.ts";
import type { Me } from "../api/schema.d.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { may } from "../common/permission.ts";
import { useDialog } from "../common/use-dialog.ts";
import classes from "./admin.module.css";
import { NameDialog } from "./name-dialog.tsx";
import { PoolDetail } from "./pool-detail.tsx";

/** The pools that the caller manages, and the chosen one below. */
export function PoolsTab({ me }: { me: Me }) {
  const { data, error, isPending, refetch } = useQuery(poolsQuery);
  const [search, setSearch] = useSearchParams();
  const { shown, show, close } = useDialog<"new">();
  if (isPending) return <Waiting label="Loading pools" />;
  if (data === undefined) return <ProblemNotice error={error} retry={() => void refetch()} />;
  const mayCreate = may(me, "installation:admin");
  const managed = data.filter((pool) => pool.may_manage);
  const chosen = managed.find(({ name }) => name === search.get("pool")) ?? managed[0];
  return (
    <div className={classes.stack}>
      <div className={classes.tools}>
        <p className={classes.lead}>Nodes belong to a pool, and a pool to the teams that may use it. A node sees the data and secrets of its jobs.</p>
        {mayCreate && <Button onClick={() => show("new")} leftSection={<IconPlus size={14} />}>New pool</Button>}
      </div>
      <ProblemNotice error={error} retry={() => void refetch()} />
      <Panel title="Pools" flush>
        {managed.length === 0 ? <Empty title="You manage no pool">An admin of the installation can appoint you.</Empty> : (
          <Table className="tabular" data-testid="pools">
            <Table.Thead><Table.Tr><Table.Th>Pool</Table.Th><Table.Th>Who may use it</Table.Th><Table.Th className={classes.wide}>Uploaded losses</Table.Th></Table.Tr></Table.Thead>
            <Table.Tbody>
              {managed.map((pool) => (
                <Table.Tr key={pool.name} className={pool.name === chosen?.name ? classes.selected : undefined}>
                  <Table.Td><Link className={classes.pick} to={`?pool=${encodeURIComponent(pool.name)}`} aria-current={pool.name === chosen?.name}>{pool.name}</Link></Table.Td>
                  <Table.Td>{pool.all_teams ? "every team" : "the teams bound to it"}</Table.Td>
                  <Table.Td className={classes.wide}>{pool.trainer_code ? "allowed" : "not allowed"}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
      </Panel>
      {chosen !== undefined && <PoolDetail key={chosen.name} me={me} settings={chosen} />}
      {shown === "new" && (
        <NameDialog title="New pool" action="Create pool" help="Small letters, digits and hyphens" changes={[poolsQuery.queryKey, ["pool"]]} onClose={close} onDone={(name) => setSearch({ pool: name })} create={(name) => post("/api/v1/pools", { body: { name } })}>
          It has no nodes, and no team may use it yet: bind teams, then add a node.
        </NameDialog>
      )}
    </div>
  );
}
