import { Button, Table } from "@mantine/core";
import { IconMessageCircle, IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import { AliasNames, CheckpointMetrics, CheckpointName } from "../checkpoints/checkpoint-cells.tsx";
import { CopyId } from "../common/copy-id.tsx";
import { bytes, moment } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import stacked from "../common/stacked.module.css";
import { StatusBadge } from "../common/status.tsx";

export function CheckpointsTab({ run }: { run: Run }) {
  const { data, error, isPending, refetch } = useQuery(queries.checkpoints(run.id));
  const mayRun = useQuery(queries.me).data?.scopes.includes("runs:write") ?? false;
  return (
    <Panel flush>
      <ProblemNotice error={error} retry={() => void refetch()} />
      {isPending ? <Waiting /> : data === undefined ? null : data.data.length === 0 ? (
        <Empty title="No checkpoints yet">The trainer commits a checkpoint every {String((run.spec["checkpoint"] as { every_steps?: number } | undefined)?.every_steps ?? "few")} steps and at the end.</Empty>
      ) : (
        <Table className={`tabular ${stacked.stacked}`}>
          <Table.Thead>
            <Table.Tr><Table.Th>Step</Table.Th><Table.Th>State</Table.Th><Table.Th>Metrics</Table.Th><Table.Th>Aliases</Table.Th><Table.Th>ID</Table.Th><Table.Th ta="right">Size</Table.Th><Table.Th>Committed</Table.Th><Table.Td /></Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {data.data.map((checkpoint) => (
              <Table.Tr key={checkpoint.id}>
                <Table.Td><CheckpointName checkpoint={checkpoint} withRun={false} /></Table.Td>
                <Table.Td data-label="State"><StatusBadge status={checkpoint.state} /></Table.Td>
                <Table.Td data-label="Metrics"><CheckpointMetrics metrics={checkpoint.metrics} /></Table.Td>
                <Table.Td data-label="Aliases"><AliasNames names={checkpoint.aliases} /></Table.Td>
                <Table.Td data-label="ID"><CopyId id={checkpoint.id} /></Table.Td>
                <Table.Td data-label="Size" ta="right">{bytes(checkpoint.bytes)}</Table.Td>
                <Table.Td data-label="Committed" c="dimmed">{moment(checkpoint.created_at)}</Table.Td>
                <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
                  {checkpoint.state === "STORED" && mayRun && (
                    <>
                      <Button component={Link} to={`/playground?checkpoint=${checkpoint.id}`} variant="subtle" leftSection={<IconMessageCircle size={14} />}>Chat</Button>
                      <Button component={Link} to={`/runs/new?checkpoint=${checkpoint.id}&from=${run.id}`} variant="subtle" leftSection={<IconPlus size={14} />}>Start a run from it</Button>
                    </>
                  )}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Panel>
  );
}
