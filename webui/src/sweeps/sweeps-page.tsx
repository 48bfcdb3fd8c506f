import { Button, Progress, Table } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";
import type { Sweep } from "../api/schema.d.ts";
import { ago, DASH, moment, number } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { StatusBadge } from "../common/status.tsx";
import stacked from "../common/stacked.module.css";
import { labels, progressText, valueText } from "./trials.ts";

const POLL_MILLISECONDS = 5_000;

export function SweepsPage() {
  const query = useInfiniteQuery({
    ...queries.sweeps,
    refetchInterval: (found) => (found.state.data?.pages.some((page) => page.data.some(({ status }) => status === "RUNNING")) ? POLL_MILLISECONDS : false),
  });
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  const create = readOnly === null && <Button component={Link} to="/sweeps/new" leftSection={<IconPlus size={14} />}>New sweep</Button>;
  return (
    <>
      <PageHeader title="Sweeps" aside={list.length > 0 && create}>A sweep runs one spec many times with some fields changed, a few runs at a time, and keeps the best.</PageHeader>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <Panel flush>
        {query.isPending ? <Waiting /> : query.data === undefined ? null : list.length === 0 ? (
          <Empty title="No sweeps yet" action={create}>Start from the spec of a run, a preset or a template, and choose the fields that vary: each value of a grid, or random points.</Empty>
        ) : (
          <Table className={`tabular ${stacked.stacked}`} data-testid="sweeps">
            <Table.Thead><Table.Tr><Table.Th>Name</Table.Th><Table.Th>Status</Table.Th><Table.Th>Trials</Table.Th><Table.Th>Varies</Table.Th><Table.Th>Best so far</Table.Th><Table.Th>By</Table.Th><Table.Th ta="right">Created</Table.Th></Table.Tr></Table.Thead>
            <Table.Tbody>{list.map((sweep) => <Row key={sweep.id} sweep={sweep} />)}</Table.Tbody>
          </Table>
        )}
        <More query={query} />
      </Panel>
    </>
  );
}

function Row({ sweep }: { sweep: Sweep }) {
  const names = labels(sweep.plan.parameters.map(({ pointer }) => pointer));
  const { best, plan: { objective, method } } = sweep;
  const waiting = (sweep.counts["waiting"] ?? 0) + (sweep.counts["running"] ?? 0);
  return (
    <Table.Tr>
      <Table.Td><div><Link to={`/sweeps/${sweep.id}`} style={{ fontWeight: 580 }}>{sweep.name}</Link><div style={{ color: "var(--ink-faint)", fontSize: "0.75rem" }}>{method === "grid" ? "Grid" : "Random"}</div></div></Table.Td>
      <Table.Td data-label="Status"><StatusBadge status={sweep.status} /></Table.Td>
      <Table.Td miw={190} data-label="Trials"><div>{progressText(sweep)}<Progress size={4} mt={4} value={(100 * (sweep.trials - waiting)) / Math.max(1, sweep.trials)} aria-label={`Trials of ${sweep.name} that ended`} /></div></Table.Td>
      <Table.Td className="mono" data-label="Varies">{[...names.values()].join(", ")}</Table.Td>
      <Table.Td miw={200} data-label="Best so far">
        {best === null ? DASH : <div>{objective.metric} <b>{number(best.objective)}</b><div style={{ color: "var(--ink-soft)", fontSize: "0.75rem" }} className="mono">{Object.entries(best.values).map(([pointer, value]) => `${names.get(pointer) ?? pointer}=${valueText(value)}`).join(" ")}</div></div>}
      </Table.Td>
      <Table.Td data-label="By">{sweep.created_by}</Table.Td>
      <Table.Td data-label="Created" ta="right" style={{ whiteSpace: "nowrap" }} title={moment(sweep.created_at)}>{ago(sweep.created_at)}</Table.Td>
    </Table.Tr>
  );
}
