import { Button, Table } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";

import { useSwitchProject } from "../account/use-switch-project.ts";
import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import { teams as teamsQuery } from "../api/team-queries.ts";
import type { Me } from "../api/schema.d.ts";
import { CopyId } from "../common/copy-id.tsx";
import { More } from "../common/more.tsx";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { may } from "../common/permission.ts";
import { useDialog } from "../common/use-dialog.ts";
import classes from "./admin.module.css";
import { NameDialog } from "./name-dialog.tsx";

/** All teams, and the projects of the team that one works in. */
export function TeamsTab({ me }: { me: Me }) {
  const teams = useInfiniteQuery(teamsQuery);
  const projects = useQuery(queries.projects);
  const { choose, isPending: isSwitching } = useSwitchProject();
  const { shown, show, close } = useDialog<"team" | "project">();
  const mine = projects.data?.data ?? [];
  const here = mine.filter(({ team }) => team.id === me.team.id);
  return (
    <div className={classes.stack}>
      <div className={classes.tools}>
        <p className={classes.lead}>A team owns projects, and projects own datasets, models, runs and checkpoints. Being admin of the installation gives no access to the projects of other teams.</p>
        <Button onClick={() => show("team")} leftSection={<IconPlus size={14} />}>New team</Button>
      </div>
      <div className={classes.pair}>
        <Panel title="Teams" flush>
          <ProblemNotice error={teams.error} retry={() => void teams.refetch()} />
          {teams.isPending ? <Waiting label="Loading teams" /> : teams.data !== undefined && (
            <Table className="tabular" data-testid="teams">
              <Table.Thead><Table.Tr><Table.Th>Team</Table.Th><Table.Th className={classes.wide}>Id</Table.Th><Table.Td w={110} /></Table.Tr></Table.Thead>
              <Table.Tbody>
                {teams.data.pages.flatMap((page) => page.data).map((team) => {
                  const project = mine.find((one) => one.team.id === team.id);
                  return (
                    <Table.Tr key={team.id}>
                      <Table.Td className={classes.name}>{team.name}</Table.Td>
                      <Table.Td className={`${classes.wide} ${classes.soft}`}><CopyId id={team.id} /></Table.Td>
                      <Table.Td ta="right">
                        {team.id === me.team.id ? <span className={classes.soft}>current</span>
                          : project === undefined ? <span className={classes.soft} title="You have no role in its projects. Its admins can invite you.">not yours</span>
                          : <Button variant="subtle" px={8} disabled={isSwitching} aria-label={`Switch to ${team.name} / ${project.name}`} onClick={() => choose(project.id)}>Switch</Button>}
                      </Table.Td>
                    </Table.Tr>
                  );
                })}
              </Table.Tbody>
            </Table>
          )}
          <More query={teams} />
        </Panel>
        <Panel title={`Your projects of ${me.team.name}`} aside={may(me, "team:admin") ? <Button variant="default" onClick={() => show("project")}>New project</Button> : undefined} flush>
          <ProblemNotice error={projects.error} retry={() => void projects.refetch()} />
          {projects.isPending ? <Waiting label="Loading projects" /> : here.map((project) => <p key={project.id} className={classes.note}><span className={classes.name}>{project.name}</span> · {project.role}{project.id === me.project.id ? ", current" : ""}</p>)}
          {!may(me, "team:admin") && <p className={classes.note}>Admins of the team {me.team.name} create projects.</p>}
        </Panel>
      </div>
      {shown === "team" && (
        <NameDialog title="New team" action="Create team" help="Letters, digits, spaces and . _ -" changes={[teamsQuery.queryKey, queries.projects.queryKey]} onClose={close} create={(name) => post("/api/v1/teams", { body: { name } })}>
          The team gets a first project, default. You are its admin until you have invited others and leave. It may use the pools that are open to all teams; bind it to others under Pools.
        </NameDialog>
      )}
      {shown === "project" && (
        <NameDialog title={`New project of ${me.team.name}`} action="Create project" help="Letters, digits, spaces and . _ -" changes={[queries.projects.queryKey]} onClose={close} create={(name) => post("/api/v1/projects", { body: { name } })}>
          Members of the whole team get their role in it. To create one in another team, switch to that team first.
        </NameDialog>
      )}
    </div>
  );
}
