import "@mantine/core/styles/NumberInput.css";
import { Button, Group, NumberInput, Table, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { put } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import { projectQuotas } from "../api/team-queries.ts";
import type { Pool, Quota } from "../api/schema.d.ts";
import { grouped } from "../common/format.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import classes from "./pool-page.module.css";

/** The quota of the reader's team and project. */
export function OwnQuota({ pool: { quota, project_quota: project, blocked_reason } }: { pool: Pool }) {
  return (
    <Panel title="Quota" flush>
      <Table className="tabular" data-testid="own-quota">
        <Table.Thead><Table.Tr><Table.Th>Whose</Table.Th><Table.Th ta="right">In use</Table.Th><Table.Th ta="right">Nominal</Table.Th><Table.Th ta="right">Limit</Table.Th></Table.Tr></Table.Thead>
        <Table.Tbody>
          <Table.Tr><Table.Td>Team {quota.team.name}</Table.Td><Figures of={quota} /></Table.Tr>
          <Table.Tr><Table.Td>Project {project.project.name}</Table.Td><Figures of={project} /></Table.Tr>
        </Table.Tbody>
      </Table>
      <Text size="xs" c="dimmed" className={classes.note}>Nominal slots are yours whenever you want them; beyond them, you borrow what is idle, up to the limit. Pool admins set quotas: {blocked_reason}.</Text>
    </Panel>
  );
}

function Figures({ of }: { of: { used_slots: number; nominal_slots: number; limit_slots: number | null } }) {
  return (
    <>
      <Table.Td ta="right">{grouped(of.used_slots)}</Table.Td>
      <Table.Td ta="right">{grouped(of.nominal_slots)}</Table.Td>
      <Table.Td ta="right">{of.limit_slots === null ? "none" : grouped(of.limit_slots)}</Table.Td>
    </>
  );
}

/** The quota of every team that may use the pool, and of their projects. */
export function Quotas({ pool }: { pool: Pool }) {
  const { data: teams, error } = useQuery(queries.poolTeams(pool.name));
  return (
    <Panel title="Quotas" flush>
      <ProblemNotice error={error} />
      <div className={classes.scroll}>
        <Table className="tabular" data-testid="quotas">
          <Table.Thead><Table.Tr><Table.Th>Team</Table.Th><Table.Th ta="right">In use</Table.Th><Table.Th>Nominal and limit, slots</Table.Th></Table.Tr></Table.Thead>
          <Table.Tbody>{teams?.map((quota) => <QuotaRow key={`${pool.name}/${quota.team.id}`} pool={pool} quota={quota} />)}</Table.Tbody>
        </Table>
      </div>
      <Text size="xs" c="dimmed" className={classes.note}>A team can always get its nominal slots, and may borrow idle ones up to its limit.</Text>
    </Panel>
  );
}

function QuotaRow({ pool, quota }: { pool: Pool; quota: Quota }) {
  const [nominal, setNominal] = useState<number | string>(quota.nominal_slots);
  const [limit, setLimit] = useState<number | string>(quota.limit_slots ?? "");
  const [isOpen, setOpen] = useState(false);
  const client = useQueryClient();
  const wanted = { nominal_slots: nominal === "" ? 0 : Number(nominal), limit_slots: limit === "" ? null : Number(limit) };
  const changed = wanted.nominal_slots !== quota.nominal_slots || wanted.limit_slots !== quota.limit_slots;
  const save = useMutation({
    mutationFn: () =>
      put("/api/v1/pools/{pool_name}/teams/{team_id}/quota", { path: { pool_name: pool.name, team_id: quota.team.id }, body: wanted }),
    onSuccess: () => void client.invalidateQueries({ queryKey: ["pool"] }),
  });
  return (
    <>
      <Table.Tr>
        <Table.Td>
          {quota.team.name}
          <span className={classes.detail}>{quota.lending_limit === null ? "lends all idle slots" : `lends at most ${grouped(quota.lending_limit)}`}</span>
          <button type="button" className={classes.link} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{isOpen ? "Hide projects" : "Show projects"}</button>
          <ProblemNotice error={save.error} />
        </Table.Td>
        <Table.Td ta="right">{grouped(quota.used_slots)}</Table.Td>
        <Table.Td>
          <Group gap={8}>
            <NumberInput aria-label={`Nominal slots of ${quota.team.name}`} min={0} w={80} value={nominal} onChange={setNominal} />
            <NumberInput aria-label={`Limit of ${quota.team.name}, slots`} placeholder="no limit" min={0} w={95} value={limit} onChange={setLimit} />
            <Button variant="default" loading={save.isPending} disabled={!changed} onClick={() => save.mutate()}>Save</Button>
          </Group>
        </Table.Td>
      </Table.Tr>
      {isOpen && <ProjectRows pool={pool.name} team={quota.team.id} />}
    </>
  );
}

/** The shares of a team's projects. Set them with `oolong pool quota`. */
function ProjectRows({ pool, team }: { pool: string; team: string }) {
  const { data: projects, error, isPending } = useQuery(projectQuotas(pool, team));
  if (isPending || projects === undefined) {
    return <Table.Tr><Table.Td colSpan={3}>{error === null ? "Loading projects" : <ProblemNotice error={error} />}</Table.Td></Table.Tr>;
  }
  if (projects.length === 0) return <Table.Tr><Table.Td colSpan={3} c="dimmed">The team has no projects.</Table.Td></Table.Tr>;
  return projects.map(({ project, used_slots, nominal_slots, limit_slots }) => (
    <Table.Tr key={project.id} className={classes.project}>
      <Table.Td pl={28}>{project.name}</Table.Td>
      <Table.Td ta="right">{grouped(used_slots)}</Table.Td>
      <Table.Td>nominal {grouped(nominal_slots)}, {limit_slots === null ? "no limit but the team's" : `limit ${grouped(limit_slots)}`}</Table.Td>
    </Table.Tr>
  ));
}
