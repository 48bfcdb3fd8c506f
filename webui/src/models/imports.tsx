import { Button, Progress, Table } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";

import { remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { ModelImport } from "../api/schema.d.ts";
import "../common/card-table.css";
import { ago, moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { ProblemNotice } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import { importPercent, importText, isUnderWay } from "./model-text.ts";

const POLL_MILLISECONDS = 2_000;

/** Imports from a hub, newest first, with progress while they run. Absent while there are none. */
export function Imports({ readOnly }: { readOnly: string | null }) {
  const query = useInfiniteQuery({
    ...queries.modelImports,
    refetchInterval: (found) => (found.state.data?.pages.some((page) => page.data.some(isUnderWay)) ? POLL_MILLISECONDS : false),
  });
  const client = useQueryClient();
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  const done = list.filter(({ state }) => state === "DONE").length;
  useEffect(() => { void client.invalidateQueries({ queryKey: queries.models.queryKey }); }, [done, client]); // an import that ends adds a model
  if (list.length === 0) return <ProblemNotice error={query.error} retry={() => void query.refetch()} />;
  return (
    <Panel title="Imports from a hub" flush>
      <Table className="tabular card-table" data-testid="imports">
        <Table.Thead><Table.Tr><Table.Th miw={180}>Model of the hub</Table.Th><Table.Th>Revision</Table.Th><Table.Th>State</Table.Th><Table.Th>Progress</Table.Th><Table.Th ta="right">Started</Table.Th><Table.Td /></Table.Tr></Table.Thead>
        <Table.Tbody>{list.map((entry) => <Row key={entry.id} entry={entry} readOnly={readOnly} />)}</Table.Tbody>
      </Table>
      <More query={query} />
    </Panel>
  );
}

function Row({ entry, readOnly }: { entry: ModelImport; readOnly: string | null }) {
  const client = useQueryClient();
  const cancel = useMutation({
    mutationFn: () => remove("/api/v1/model-imports/{import_id}", { path: { import_id: entry.id } }),
    onSettled: () => void client.invalidateQueries({ queryKey: ["model-imports"] }),
    onSuccess: () => notifications.show({ message: `The import of ${entry.hub_model} is canceled, and what was fetched is deleted` }),
  });
  const share = importPercent(entry);
  return (
    <Table.Tr>
      <Table.Td><b style={{ fontWeight: 580 }}>{entry.hub_model}</b><div style={{ color: "var(--ink-soft)", fontSize: "0.75rem", overflowWrap: "anywhere" }}>{entry.hub} as {entry.model?.ref || entry.name}</div></Table.Td>
      <Table.Td data-label="Revision">{entry.revision}<div className="mono" style={{ color: "var(--ink-soft)" }} title={entry.commit}>{entry.commit.slice(0, 12)}</div></Table.Td>
      <Table.Td data-label="State"><StatusBadge status={entry.state} /></Table.Td>
      <Table.Td data-label="Progress" style={{ minWidth: 220, overflowWrap: "anywhere" }}>{importText(entry)}{share !== null && <Progress mt={4} size={6} value={share} aria-label={`Fetched of ${entry.hub_model}`} />}<ProblemNotice error={cancel.error} /></Table.Td>
      <Table.Td data-label="Started" ta="right" style={{ whiteSpace: "nowrap" }} title={moment(entry.created_at)}>{ago(entry.created_at)}</Table.Td>
      <Table.Td ta="right">{isUnderWay(entry) && <Button variant="subtle" color="red" disabled={readOnly !== null} title={readOnly ?? "What was fetched is deleted"} loading={cancel.isPending} onClick={() => cancel.mutate()} aria-label={`Cancel the import of ${entry.hub_model}`}>Cancel</Button>}</Table.Td>
    </Table.Tr>
  );
}
