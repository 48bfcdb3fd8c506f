import { Table } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";
import "../common/card-table.css";
import { ago, moment } from "../common/format.ts";
import { numberAt } from "../common/json.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { hasEnded } from "../runs/ended.ts";
import { findings } from "./report.ts";
import { ResultBadge } from "./result-badge.tsx";

/** Tests of one reward or of all, newest first. */
export function TestsTable({ reward, empty }: { reward?: string; empty: string }) {
  const query = useInfiniteQuery({
    ...queries.rewardTests(reward),
    refetchInterval: (found) => (found.state.data?.pages.some((page) => page.data.some((test) => test.result === "" && !hasEnded(test.status))) ? 3_000 : false),
  });
  const tests = query.data?.pages.flatMap((page) => page.data) ?? [];
  if (query.isPending) return <Waiting />;
  return (
    <>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.data !== undefined && (tests.length === 0 ? <Empty title="No tests yet" action={<Link to={`/functions/tests/new${reward === undefined ? "" : `?reward=${encodeURIComponent(reward)}`}`}>Test {reward ?? "a reward"}</Link>}>{empty}</Empty> : (
        <Table className="tabular card-table" data-testid="reward-tests">
          <Table.Thead><Table.Tr><Table.Th>Result</Table.Th>{reward === undefined && <Table.Th>Reward</Table.Th>}<Table.Th>Dataset</Table.Th><Table.Th ta="right">Calls</Table.Th><Table.Th>First finding</Table.Th><Table.Th>By</Table.Th><Table.Th ta="right">Started</Table.Th></Table.Tr></Table.Thead>
          <Table.Tbody>
            {tests.map((test) => (
              <Table.Tr key={test.id}>
                <Table.Td><Link to={`/functions/tests/${test.id}`} ><ResultBadge test={test} /><span className="visually-hidden"> test of {test.reward} on {test.dataset.ref}</span></Link></Table.Td>
                {reward === undefined && <Table.Td data-label="Reward" fw={580}>{test.reward}</Table.Td>}
                <Table.Td data-label="Dataset">{test.dataset.ref}</Table.Td>
                <Table.Td data-label="Calls" ta="right">{numberAt(test.report, "calls") ?? ""}</Table.Td>
                <Table.Td data-label="First finding" style={{ overflowWrap: "anywhere", minWidth: 240 }}>{findings(test.report)[0]?.message ?? (test.result === "" ? test.pending_reason || test.reason_message : "none")}</Table.Td>
                <Table.Td data-label="By">{test.created_by}</Table.Td>
                <Table.Td data-label="Started" ta="right" style={{ whiteSpace: "nowrap" }} title={moment(test.created_at)}>{ago(test.created_at)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      ))}
      <More query={query} />
    </>
  );
}
