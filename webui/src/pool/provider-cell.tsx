import { Table, Text } from "@mantine/core";
import type { Node } from "../api/schema.d.ts";
import { moment } from "../common/format.ts";

const NAMES: Record<Node["provider"], string> = { manual: "Manual", local: "Local stack", slurm: "Slurm", kubernetes: "Kubernetes" };

/** What has started the agent of a node, and when it ends the node. */
export function ProviderCell({ node }: { node: Node }) {
  const origin = [node.partition !== "" && `partition ${node.partition}`, node.account !== "" && `account ${node.account}`].filter(Boolean).join(", ");
  return (
    <Table.Td title={origin || undefined}>
      {NAMES[node.provider]} {node.provider_job}
      {node.ends_at !== null && <Text size="xs" c="dimmed" title="It is drained before">Ends {moment(node.ends_at)}</Text>}
    </Table.Td>
  );
}
