import { Button, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import * as queries from "../api/queries.ts";
import type { Me } from "../api/schema.d.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { MEANINGS } from "../team/roles.ts";
import classes from "./account.module.css";
import { useSwitchProject } from "./use-switch-project.ts";

/** Every project of the caller with the role in it. */
export function ProjectsPanel({ me }: { me: Me }) {
  const { data, error, isPending, refetch } = useQuery(queries.projects);
  const { choose, isPending: isSwitching } = useSwitchProject();
  return (
    <Panel title="Projects" aside={data?.data.length} flush>
      <ProblemNotice error={error} retry={() => void refetch()} />
      {isPending ? <Waiting label="Loading projects" /> : data !== undefined && (
        <Table className="tabular" data-testid="projects">
          <Table.Thead><Table.Tr><Table.Th>Team / project</Table.Th><Table.Th>Your role</Table.Th><Table.Td w={110} /></Table.Tr></Table.Thead>
          <Table.Tbody>
            {data.data.map((project) => (
              <Table.Tr key={project.id}>
                <Table.Td className={classes.name}>{project.team.name} / {project.name}</Table.Td>
                <Table.Td title={MEANINGS[project.role]}>{project.role}</Table.Td>
                <Table.Td ta="right">
                  {project.id === me.project.id
                    ? <span className={classes.current}>current</span>
                    : <Button variant="subtle" px={8} disabled={isSwitching} aria-label={`Switch to ${project.team.name} / ${project.name}`} onClick={() => choose(project.id)}>Switch</Button>}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
      {data?.has_more === true && <p className={classes.note}>Only the first {data.data.length} are shown. <code className="mono">oolong project list</code> lists all.</p>}
    </Panel>
  );
}
