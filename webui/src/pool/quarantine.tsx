import { Button, Group, Modal, Stack, Table, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post } from "../api/http.ts";
import type { Node, Pool } from "../api/schema.d.ts";
import { ago, moment } from "../common/format.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { useNow } from "../common/use-now.ts";
import { RequiresAdmin } from "./requires-admin.tsx";

/** The row below a quarantined node: since when, why, and a button that releases it. */
export function QuarantineRow({ node, pool, columns }: { node: Node; pool: Pool; columns: number }) {
  const now = useNow(30_000);
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => post("/api/v1/pool/nodes/{node_id}/release", { path: { node_id: node.id } }),
    onSettled: () => void client.invalidateQueries({ queryKey: ["pool"] }),
  });
  if (node.quarantined_at === null) return null;
  return (
    <Table.Tr data-testid="quarantine">
      <Table.Td colSpan={columns}>
        <Group justify="space-between" align="flex-start" wrap="nowrap">
          <Text size="xs" c="dimmed" title={moment(node.quarantined_at)}>Quarantined {ago(node.quarantined_at, now)}, no new jobs start: {node.quarantine_reason}</Text>
          <RequiresAdmin pool={pool}><Button variant="default" style={{ flexShrink: 0 }} disabled={!pool.may_manage} loading={act.isPending} aria-label={`Release ${node.name}`} onClick={() => act.mutate()}>Release</Button></RequiresAdmin>
        </Group>
        <ProblemNotice error={act.error} />
      </Table.Td>
    </Table.Tr>
  );
}

/** Quarantines a node by hand. */
export function QuarantineNode({ node, onClose }: { node: Node; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => post("/api/v1/pool/nodes/{node_id}/quarantine", { path: { node_id: node.id }, body: { reason } }),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ["pool"] });
      onClose();
    },
  });
  return (
    <Modal opened onClose={onClose} title={`Quarantine ${node.name}`}>
      <form onSubmit={(event) => { event.preventDefault(); act.mutate(); }}>
        <Stack gap="sm">
          <Text size="sm">No new jobs start on {node.name} until it is released. Running jobs continue; drain the node to move them away.</Text>
          <TextInput label="Reason" data-autofocus maxLength={400} placeholder="XID 79 on GPU 3" value={reason} onChange={(event) => setReason(event.currentTarget.value)} />
          <ProblemNotice error={act.error} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={act.isPending} disabled={reason.trim() === ""}>Quarantine node</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
