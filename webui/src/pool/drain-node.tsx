import "@mantine/core/styles/NumberInput.css";
import { Button, Group, NumberInput, Select, Table, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { post } from "../api/http.ts";
import type { LeavingRun, Node, Pool } from "../api/schema.d.ts";
import { moment } from "../common/format.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useNow } from "../common/use-now.ts";
import { deadlineText, drainBody, isDrained, leavingFrom, MAX_AMOUNT, stageText, type Unit } from "./drain.ts";

/** Drains the node, or changes the deadline of its drain. */
export function DrainNode({ node, drained, close }: { node: Node; drained: boolean; close: () => void }) {
  const [amount, setAmount] = useState<number | string>("");
  const [unit, setUnit] = useState<Unit>("hours");
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => post("/api/v1/pool/nodes/{node_id}/drain", { path: { node_id: node.id }, body: drainBody(amount, unit) }),
    onSuccess: close,
    onSettled: () => void client.invalidateQueries({ queryKey: ["pool"] }),
  });
  return (
    <>
      {drained
        ? <Text size="sm" mb={10}>The deadline counts from now and replaces an earlier one.</Text>
        : <Text size="sm" mb={10}>No new jobs start on {node.name}. Runs with a trainer save a checkpoint and continue on other nodes. No run fails because of a drain.</Text>}
      <Text size="sm" mb={16}>With a deadline, evaluations may finish and playgrounds may be used until then; at the deadline all jobs that are left are stopped. {!drained && "Without one, evaluations start over on other nodes and playgrounds end now."}</Text>
      <Group align="flex-end" gap={8} mb={16}>
        <NumberInput label={drained ? "Deadline" : "Deadline (optional)"} placeholder={drained ? "" : "none"} min={0} max={MAX_AMOUNT[unit]} w={150} value={amount} onChange={setAmount} />
        <Select aria-label="Unit of the deadline" w={120} allowDeselect={false} data={Object.keys(MAX_AMOUNT)} value={unit} onChange={(value) => setUnit(value as Unit)} />
      </Group>
      <ProblemNotice error={act.error} />
      <Group justify="flex-end" mt={12}>
        <Button variant="default" onClick={close}>Close</Button>
        <Button disabled={drained && amount === ""} loading={act.isPending} onClick={() => act.mutate()}>{drained ? "Set deadline" : "Drain"}</Button>
      </Group>
    </>
  );
}

/** The row below a node that is drained: the deadline, who is left, and a button that cancels the drain. */
export function DrainRow({ node, pool, columns, changeDeadline }: { node: Node; pool: Pool; columns: number; changeDeadline: () => void }) {
  const now = useNow(10_000);
  const client = useQueryClient();
  const cancel = useMutation({
    mutationFn: () => post("/api/v1/pool/nodes/{node_id}/uncordon", { path: { node_id: node.id } }),
    onSettled: () => void client.invalidateQueries({ queryKey: ["pool"] }),
  });
  if (!isDrained(node, pool.leaving)) return null;
  const leaving = leavingFrom(node, pool.leaving);
  return (
    <Table.Tr data-testid="drain">
      <Table.Td colSpan={columns}>
        <Group justify="space-between" align="flex-start" wrap="nowrap">
          <div>
            <Text size="xs" c="dimmed" title={moment(node.drain_deadline)}>
              {node.status === "DRAINED" ? "Drained: no run needs the node" : `Draining: ${deadlineText(node.drain_deadline, now)}`}
              {node.maintenance_ends_at !== null && `; its maintenance ends ${moment(node.maintenance_ends_at)}, then it accepts jobs again`}
            </Text>
            {leaving.map((run, index) => <Leaving key={run.run_id || index} run={run} />)}
          </div>
          {pool.may_manage && (
            <Group gap={6} wrap="nowrap">
              {node.status !== "DRAINED" && <Button variant="default" onClick={changeDeadline}>{node.drain_deadline === null ? "Set deadline" : "Change deadline"}</Button>}
              <Button variant="default" loading={cancel.isPending} onClick={() => cancel.mutate()}>Cancel drain</Button>
            </Group>
          )}
        </Group>
        <ProblemNotice error={cancel.error} />
      </Table.Td>
    </Table.Tr>
  );
}

/** Runs of other teams have no page that the caller may see. */
function Leaving({ run }: { run: LeavingRun }) {
  return (
    <Group gap={8} mt={4}>
      {run.run_id === "" ? <Text size="sm">{run.run_name}</Text> : <Link to={`/runs/${run.run_id}`}>{run.run_name}</Link>}
      <StatusBadge status={run.stage} />
      <Text size="xs" c="dimmed">{stageText(run)}</Text>
    </Group>
  );
}
