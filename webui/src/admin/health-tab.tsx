import { Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { health as healthQuery } from "../api/team-queries.ts";
import { ago } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useNow } from "../common/use-now.ts";
import classes from "./admin.module.css";
import { failing, isWell, SERVICES } from "./health.ts";

/** The state of each dependency, asked every ten seconds. */
export function HealthTab() {
  const { data: health, error, isPending, refetch, dataUpdatedAt } = useQuery(healthQuery);
  const now = useNow(5_000);
  if (isPending) return <Waiting label="Asking every service" />;
  if (health === undefined) return <ProblemNotice error={error} retry={() => void refetch()} />;
  const bad = failing(health);
  return (
    <div className={classes.stack}>
      <ProblemNotice error={error} retry={() => void refetch()} />
      <Panel title={bad.length === 0 ? "All services work" : `${bad.map(({ name }) => name).join(", ")}: not working`} aside={`asked ${ago(new Date(dataUpdatedAt).toISOString(), now)}`} flush>
        <Table data-testid="health">
          <Table.Thead><Table.Tr><Table.Th>Service</Table.Th><Table.Th>State</Table.Th><Table.Th className={classes.wide}>What it is for</Table.Th></Table.Tr></Table.Thead>
          <Table.Tbody>
            {SERVICES.map(({ key, name, purpose, advice }) => (
              <Table.Tr key={key} data-service={key}>
                <Table.Td className={classes.name}>{name}</Table.Td>
                <Table.Td><StatusBadge status={isWell(health[key]) ? "WORKS" : "unhealthy"} />{!isWell(health[key]) && <div>{health[key]}<div className={classes.soft}>{advice}</div></div>}</Table.Td>
                <Table.Td className={`${classes.wide} ${classes.soft}`}>{purpose}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
        <p className={classes.note}>On the server, <code className="mono">python3 manage.py doctor</code> looks further: disks, queues, errors and settings. <a href="/docs/how-to/operate" target="_blank" rel="noreferrer">How to monitor</a></p>
      </Panel>
    </div>
  );
}
