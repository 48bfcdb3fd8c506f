import "@mantine/core/styles/NumberInput.css";
import { Button, Group, Select, Table } from "@mantine/core";
import { IconChevronDown, IconChevronRight } from "@tabler/icons-react";
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Fragment, useState } from "react";

import { post, put, remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import { projectQuotas as projectsQuery, teams as teamsQuery } from "../api/team-queries.ts";
import type { Me, PoolSettings, ProjectQuota, Quota } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { grouped } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { may } from "../common/permission.ts";
import { useDialog } from "../common/use-dialog.ts";
import classes from "./admin.module.css";
import { QuotaDialog } from "./quota-dialog.tsx";
import { projectBody, teamBody } from "./quota.ts";

type Dialog = { kind: "quota" | "unbind"; quota: Quota };

/** The teams that may use a pool, with the quota of each and of its projects. */
export function PoolTeams({ me, settings }: { me: Me; settings: PoolSettings }) {
  const pool = settings.name;
  const { data: quotas, error, refetch } = useQuery(queries.poolTeams(pool));
  const { shown, show, close } = useDialog<Dialog>();
  const [openId, setOpenId] = useState<string | null>(null);
  const mayBind = may(me, "installation:admin");
  const limitOf = (limit: number | null) => (limit === null ? "none" : grouped(limit));
  return (
    <Panel title="Teams and quotas, in slots" aside={mayBind && !settings.all_teams && quotas !== undefined ? <BindTeam pool={pool} bound={quotas} /> : undefined} flush>
      <ProblemNotice error={error} retry={() => void refetch()} />
      {quotas === undefined ? error === null && <Waiting label="Loading teams" /> : quotas.length === 0 ? <p className={classes.note}>No team may use this pool yet. Bind a team, or open the pool to every team.</p> : (
        <Table className="tabular" data-testid="pool-teams">
          <Table.Thead>
            <Table.Tr>
              <Table.Td w={36} /><Table.Th>Team</Table.Th><Table.Th ta="right">In use</Table.Th><Table.Th ta="right" title="Slots that the team can always get">Nominal</Table.Th>
              <Table.Th ta="right" title="Most slots at once, borrowed ones included">Limit</Table.Th><Table.Th ta="right" className={classes.wide} title="Most of its idle nominal slots that others may borrow">Lends</Table.Th><Table.Td />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {quotas.map((quota) => (
              <Fragment key={quota.team.id}>
                <Table.Tr>
                  <Table.Td><Button variant="subtle" color="gray" px={4} aria-expanded={openId === quota.team.id} aria-label={`Projects of ${quota.team.name}`} onClick={() => setOpenId(openId === quota.team.id ? null : quota.team.id)}>{openId === quota.team.id ? <IconChevronDown size={14} /> : <IconChevronRight size={14} />}</Button></Table.Td>
                  <Table.Td className={classes.name}>{quota.team.name}</Table.Td>
                  <Table.Td ta="right">{grouped(quota.used_slots)}</Table.Td>
                  <Table.Td ta="right">{grouped(quota.nominal_slots)}</Table.Td>
                  <Table.Td ta="right">{limitOf(quota.limit_slots)}</Table.Td>
                  <Table.Td ta="right" className={classes.wide}>{quota.nominal_slots === 0 ? "–" : quota.lending_limit === null ? "all" : grouped(quota.lending_limit)}</Table.Td>
                  <Table.Td>
                    <Group gap={2} justify="flex-end" wrap="nowrap">
                      <Button variant="subtle" px={8} aria-label={`Quota of ${quota.team.name}`} onClick={() => show({ kind: "quota", quota })}>Quota</Button>
                      {mayBind && !settings.all_teams && <Button variant="subtle" color="red" px={8} aria-label={`Unbind ${quota.team.name}`} onClick={() => show({ kind: "unbind", quota })}>Unbind</Button>}
                    </Group>
                  </Table.Td>
                </Table.Tr>
                {openId === quota.team.id && <Table.Tr data-testid="project-quotas"><Table.Td colSpan={7}><Projects pool={pool} team={quota.team} /></Table.Td></Table.Tr>}
              </Fragment>
            ))}
          </Table.Tbody>
        </Table>
      )}
      {shown?.kind === "quota" && (
        <QuotaDialog title={`Quota of ${shown.quota.team.name} in ${pool}`} name={shown.quota.team.name} quota={shown.quota} withLending onClose={close}
          save={(form) => put("/api/v1/pools/{pool_name}/teams/{team_id}/quota", { path: { pool_name: pool, team_id: shown.quota.team.id }, body: teamBody(form) })} />
      )}
      {shown?.kind === "unbind" && (
        <Confirm title={`Unbind ${shown.quota.team.name} from ${pool}?`} action="Unbind" changes={[["pool"]]} onClose={close} run={() => remove("/api/v1/pools/{pool_name}/teams/{team_id}", { path: { pool_name: pool, team_id: shown.quota.team.id } })}>
          {shown.quota.used_slots > 0 ? `It uses ${grouped(shown.quota.used_slots)} slots now. ` : ""}Its runs here save a checkpoint and return to the queue, where they wait until the team may use the pool again. Playgrounds and reward tests end. Data that is already on a node stays there.
        </Confirm>
      )}
    </Panel>
  );
}

function Projects({ pool, team }: { pool: string; team: { id: string; name: string } }) {
  const { data: projects, error, refetch } = useQuery(projectsQuery(pool, team.id));
  const { shown, show, close } = useDialog<ProjectQuota>();
  if (projects === undefined) return error === null ? <Waiting label="Loading projects" /> : <ProblemNotice error={error} retry={() => void refetch()} />;
  return (
    <div className={classes.projects}>
      <Table className="tabular" withRowBorders={false} verticalSpacing={3}>
        <Table.Thead><Table.Tr><Table.Th>Project of {team.name}</Table.Th><Table.Th ta="right">In use</Table.Th><Table.Th ta="right">Nominal</Table.Th><Table.Th ta="right">Limit</Table.Th><Table.Td /></Table.Tr></Table.Thead>
        <Table.Tbody>
          {projects.map((quota) => (
            <Table.Tr key={quota.project.id}>
              <Table.Td>{quota.project.name}</Table.Td>
              <Table.Td ta="right">{grouped(quota.used_slots)}</Table.Td>
              <Table.Td ta="right">{grouped(quota.nominal_slots)}</Table.Td>
              <Table.Td ta="right">{quota.limit_slots === null ? "the team's" : grouped(quota.limit_slots)}</Table.Td>
              <Table.Td ta="right"><Button variant="subtle" px={8} aria-label={`Quota of the project ${quota.project.name}`} onClick={() => show(quota)}>Quota</Button></Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      {shown !== null && (
        <QuotaDialog title={`Quota of ${team.name} / ${shown.project.name} in ${pool}`} name={shown.project.name} quota={shown} onClose={close}
          save={(form) => put("/api/v1/pools/{pool_name}/teams/{team_id}/projects/{project_id}/quota", { path: { pool_name: pool, team_id: team.id, project_id: shown.project.id }, body: projectBody(form) })} />
      )}
    </div>
  );
}

function BindTeam({ pool, bound }: { pool: string; bound: Quota[] }) {
  const teams = useInfiniteQuery(teamsQuery);
  const client = useQueryClient();
  const bind = useMutation({
    mutationFn: (team: string) => post("/api/v1/pools/{pool_name}/teams", { path: { pool_name: pool }, body: { team } }),
    onSuccess: () => void client.invalidateQueries({ queryKey: ["pool"] }),
  });
  const others = (teams.data?.pages.flatMap((page) => page.data) ?? []).filter(({ id }) => !bound.some(({ team }) => team.id === id));
  return (
    <Select
      aria-label="Bind a team" placeholder={others.length === 0 && teams.data !== undefined ? "Every team is bound" : "Bind a team"} searchable w={190} data={others.map(({ id, name }) => ({ value: id, label: name }))} value={null}
      disabled={bind.isPending || others.length === 0} onChange={(team) => { if (team !== null) bind.mutate(team); }} error={bind.error?.message}
    />
  );
}
