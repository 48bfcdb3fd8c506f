import { Button, SegmentedControl, Table } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { FunctionData, SourceKind } from "./types.ts";
import "../common/card-table.css";
import { ago, bytes, moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { TestsTable } from "../reward-tests/tests-table.tsx";
import classes from "./function-page.module.css";
import { isKind, KIND_NAMES, KINDS, signature } from "./kinds.ts";

/** Rewards, workflows and losses of the project, and the tests of rewards. */
export function FunctionsPage() {
  const [search, setSearch] = useSearchParams();
  const shown = search.get("show") ?? "all";
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const choices = [{ value: "all", label: "All" }, ...KIND_NAMES.map((kind) => ({ value: kind as string, label: KINDS[kind].plural })), { value: "tests", label: "Tests" }, { value: "archived", label: "Archived" }];
  return (
    <>
      <PageHeader
        title="Functions"
        aside={readOnly === null && (
          <>
            <Button component={Link} to="/functions/tests/new" variant="default">Test a reward</Button>
            <Button component={Link} to={isKind(shown) ? `/functions/new?kind=${shown}` : "/functions/new"} leftSection={<IconPlus size={14} />}>New function</Button>
          </>
        )}
      >
        Your own rewards, workflows and losses: one Python file each, in immutable versions. A run references one of them, such as name@3.
      </PageHeader>
      <div className={classes.choices}><SegmentedControl aria-label="Show" value={shown} onChange={(value) => setSearch(value === "all" ? {} : { show: value }, { replace: true })} data={choices} /></div>
      {shown === "tests" ? <Panel flush><TestsTable empty="Test a reward on rows of a dataset before a run learns from it." /></Panel> : <List key={shown} kind={isKind(shown) ? shown : undefined} archived={shown === "archived" ? "only" : undefined} readOnly={readOnly !== null} />}
    </>
  );
}

function List({ kind, archived, readOnly }: { kind?: SourceKind; archived?: "only"; readOnly: boolean }) {
  const query = useInfiniteQuery(queries.functions(kind, archived));
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  return (
    <>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <Panel flush>
        {query.isPending ? <Waiting /> : query.data === undefined ? null : list.length === 0 && archived === "only" ? (
          <Empty title="No archived functions">Archive a function on its page when no new run should take it. It stays for the runs that used it.</Empty>
        ) : list.length === 0 ? (
          <Empty title={kind === undefined ? "No functions yet" : `No ${KINDS[kind].plural.toLowerCase()} yet`} action={!readOnly && <Button component={Link} to={`/functions/new?kind=${kind ?? "reward"}`}>New {KINDS[kind ?? "reward"].label.toLowerCase()}</Button>}>
            {kind === undefined
              ? "Runs use built-in rewards, workflows and losses. Where none fits, write one: the editor begins with a file that works."
              : EMPTY[kind]}
          </Empty>
        ) : (
          <Table className="tabular card-table" data-testid="functions">
            <Table.Thead>
              <Table.Tr><Table.Th>Name</Table.Th><Table.Th>Kind</Table.Th><Table.Th>Newest version</Table.Th><Table.Th>Signature</Table.Th><Table.Th ta="right">Size</Table.Th><Table.Th>By</Table.Th><Table.Th ta="right">Uploaded</Table.Th><Table.Th ta="right" style={{ whiteSpace: "nowrap" }}>Used in</Table.Th></Table.Tr>
            </Table.Thead>
            <Table.Tbody>{list.map((entry) => <Row key={entry.id} entry={entry} />)}</Table.Tbody>
          </Table>
        )}
        <More query={query} />
      </Panel>
    </>
  );
}

const EMPTY: Record<SourceKind, string> = {
  reward: "A reward turns one completion into one number. Built in are exact_match, math, code, format, length and composite; http and judge ask a service elsewhere.",
  workflow: "A workflow turns a prompt into a trajectory, over one turn or several. Built in are single_turn, multi_turn and python_tool.",
  loss: "A loss gives one number per token to the trainer. Pools accept losses only where an admin of the installation allows them.",
};

function Row({ entry }: { entry: FunctionData }) {
  const [newest] = entry.versions;
  return (
    <Table.Tr>
      <Table.Td><Link to={`/functions/${entry.id}`} style={{ fontWeight: 580 }}>{entry.name}</Link><div style={{ color: "var(--ink-faint)", fontSize: "0.75rem", maxWidth: 360 }}>{entry.description}</div></Table.Td>
      <Table.Td data-label="Kind">{KINDS[entry.kind].label}</Table.Td>
      <Table.Td data-label="Newest version">{newest?.ref ?? "no version"}</Table.Td>
      <Table.Td data-label="Signature" className="mono" style={{ overflowWrap: "anywhere", maxWidth: 420, minWidth: 220 }}>{newest === undefined ? "" : signature(newest)}</Table.Td>
      <Table.Td data-label="Size" ta="right" style={{ whiteSpace: "nowrap" }}>{bytes(newest?.bytes)}</Table.Td>
      <Table.Td data-label="By">{newest?.created_by ?? entry.created_by}</Table.Td>
      <Table.Td data-label="Uploaded" ta="right" style={{ whiteSpace: "nowrap" }} title={moment(newest?.created_at ?? entry.created_at)}>{ago(newest?.created_at ?? entry.created_at)}</Table.Td>
      <Table.Td data-label="Used in" ta="right"><Link to={`/runs?function=${encodeURIComponent(entry.name)}`} aria-label={`Runs that use ${entry.name}`}>Runs</Link></Table.Td>
    </Table.Tr>
  );
}
