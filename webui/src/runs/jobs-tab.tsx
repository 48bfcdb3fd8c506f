import { Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";
import type { Job, Run } from "../api/schema.d.ts";
import { DASH, duration, words } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import stacked from "../common/stacked.module.css";
import { useNow } from "../common/use-now.ts";

export function JobsTab({ run }: { run: Run }) {
  const { data, error, isPending, refetch } = useQuery(queries.runJobs(run.id));
  const now = useNow(5_000);
  const age = (job: Job) => (job.started_at === null ? null : ((job.ended_at === null ? now : Date.parse(job.ended_at)) - Date.parse(job.started_at)) / 1000);
  return (
    <Panel flush>
      <ProblemNotice error={error} retry={() => void refetch()} />
      {isPending ? <Waiting /> : data === undefined ? null : data.data.length === 0 ? <Empty title="No jobs yet">Jobs appear when the scheduler starts the run on a node.</Empty> : (
        <Table className={`tabular ${stacked.stacked}`}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Job</Table.Th><Table.Th>State</Table.Th><Table.Th>Attempt</Table.Th><Table.Th>Node</Table.Th><Table.Th ta="right">Slots</Table.Th>
              <Table.Th ta="right">Restarts</Table.Th><Table.Th ta="right">PID</Table.Th><Table.Th ta="right">Exit code</Table.Th><Table.Th ta="right">Duration</Table.Th><Table.Th>Reason</Table.Th><Table.Td />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {data.data.map((job) => (
              <Table.Tr key={job.id}>
                <Table.Td fw={560}>{job.name}</Table.Td>
                <Table.Td data-label="State"><StatusBadge status={job.state} />{job.evaluates !== null && <div style={{ color: "var(--ink-soft)" }}>{job.state === "exited" ? "evaluated" : "evaluating"} v{job.evaluates}</div>}</Table.Td>
                <Table.Td data-label="Attempt">{job.attempt_number}</Table.Td>
                <Table.Td data-label="Node">{job.node.name}</Table.Td>
                <Table.Td data-label="Slots" ta="right">{job.slots.length}</Table.Td>
                <Table.Td data-label="Restarts" ta="right">{job.incarnation}</Table.Td>
                <Table.Td data-label="PID" ta="right">{job.pid ?? DASH}</Table.Td>
                <Table.Td data-label="Exit code" ta="right">{job.exit_code ?? DASH}</Table.Td>
                <Table.Td data-label="Duration" ta="right">{duration(age(job))}</Table.Td>
                <Table.Td data-label={job.reason === "" && job.message === "" ? undefined : "Reason"}><div>{job.reason === "stopped_by_user" ? "Stopped on request" : words(job.reason)}{job.message !== "" && <div style={{ color: "var(--ink-soft)" }}>{job.message}</div>}</div></Table.Td>
                <Table.Td><Link to={`?tab=logs&job=${job.id}`}>Log</Link></Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Panel>
  );
}
