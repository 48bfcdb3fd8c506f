import { Button, Progress, SegmentedControl, Table, TextInput } from "@mantine/core";
import { IconPlus, IconX } from "@tabler/icons-react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import { ago, clock, DASH, moment, number } from "../common/format.ts";
import { numberAt } from "../common/json.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { StatusBadge } from "../common/status.tsx";
import { useNow } from "../common/use-now.ts";
import { elapsedSeconds } from "./elapsed.ts";
import { hasEnded } from "./ended.ts";
import classes from "./runs-page.module.css";

/** Conditions that the "Needs attention" filter selects. */
const ATTENTION = "NEEDS_ATTENTION,DEGRADED,UNRESPONSIVE";

const FILTERS = [
  { value: "", label: "All" },
  { value: "QUEUED,STARTING,RUNNING,RECOVERING,PAUSING,STOPPING,FINALIZING", label: "Active" },
  { value: ATTENTION, label: "Needs attention" },
  { value: "PAUSED", label: "Paused" },
  { value: "SUCCEEDED", label: "Succeeded" },
  { value: "STOPPED", label: "Stopped" },
  { value: "FAILED", label: "Failed" },
];

export function RunsPage() {
  const [search, setSearch] = useSearchParams();
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const status = search.get("status") ?? "";
  const condition = search.get("condition") ?? "";
  const name = search.get("name") ?? "";
  const tag = search.get("tag") ?? "";
  const query = useInfiniteQuery({ ...queries.runs({ status, name, ...(condition === "" ? {} : { condition }), ...(tag === "" ? {} : { tag }) }), refetchInterval: 60_000 });
  const set = (key: string, value: string) => setSearch((old) => { if (value === "") old.delete(key); else old.set(key, value); return old; }, { replace: true });
  const setFilter = (value: string) => setSearch((old) => {
    old.delete("status");
    old.delete("condition");
    if (value !== "") old.set(value === ATTENTION ? "condition" : "status", value);
    return old;
  }, { replace: true });

  const runs = query.data?.pages.flatMap((page) => page.data) ?? [];
  return (
    <>
      <PageHeader title="Runs" aside={readOnly === null ? <Button component={Link} to="/runs/new" leftSection={<IconPlus size={14} />}>Start a run</Button> : <span title={readOnly}>Read-only access</span>} />
      <div className={classes.tools}>
        <SegmentedControl value={condition || status} onChange={setFilter} data={FILTERS} />
        <TextInput type="search" placeholder="Search by name  /" aria-label="Search by name" w={220} value={name} onChange={(event) => set("name", event.currentTarget.value)} />
        {tag !== "" && <Button variant="light" rightSection={<IconX size={12} />} onClick={() => set("tag", "")} aria-label={`Remove filter: tag ${tag}`}>#{tag}</Button>}
      </div>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <Panel flush>
        {query.isPending ? <Waiting /> : query.data === undefined ? null : runs.length === 0 ? (
          status === "" && condition === "" && name === "" && tag === "" ? (
            <Empty title="No runs yet" action={<Button component={Link} to="/runs/new">Start a run</Button>}>
              A run trains a model on a dataset version with a reward. It needs <Link to="/datasets">a dataset</Link> and <Link to="/models">a base model</Link>.
            </Empty>
          ) : <Empty title="No matching runs">Select another status or clear the search.</Empty>
        ) : <RunsTable runs={runs} />}
        <More query={query} />
      </Panel>
    </>
  );
}

function RunsTable({ runs }: { runs: Run[] }) {
  const navigate = useNavigate();
  const now = useNow(2_000);
  const elapsed = (run: Run) => { const seconds = elapsedSeconds(run, now); return seconds === null ? DASH : clock(seconds); };
  return (
    <Table highlightOnHover className="tabular" data-testid="runs">
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Run</Table.Th><Table.Th w={130}>Status</Table.Th><Table.Th w={170}>Progress</Table.Th><Table.Th ta="right">Reward</Table.Th>
          <Table.Th ta="right">Staleness</Table.Th><Table.Th ta="right">Version</Table.Th><Table.Th>Dataset</Table.Th><Table.Th ta="right">Elapsed</Table.Th><Table.Th ta="right">Created</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {runs.map((run) => {
          const bound = run.live.max_staleness ?? numberAt(run.spec, "staleness", "max");
          return (
            <Table.Tr key={run.id} className={classes.row} data-run={run.id} onClick={() => void navigate(`/runs/${run.id}`)}>
              <Table.Td>
                <Link to={`/runs/${run.id}`} className={classes.name} onClick={(event) => event.stopPropagation()}>{run.name}</Link>
                <div className={classes.sub}>
                  {run.kind} · <span className="mono">{run.id}</span>
                  {run.status === "QUEUED" && run.pending_reason !== "" && <> · {run.pending_reason}</>}
                  {(run.status === "FAILED" || run.conditions.includes("NEEDS_ATTENTION")) && <> · {run.reason_message || run.reason}</>}
                </div>
              </Table.Td>
              <Table.Td>
                <StatusBadge status={run.status} />
                {run.conditions.map((condition) => <StatusBadge key={condition} status={condition} />)}
              </Table.Td>
              <Table.Td>
                {run.total_train_steps ? (
                  <div className={classes.progress}>
                    <Progress value={(100 * run.train_step) / run.total_train_steps} size={4} color={hasEnded(run.status) ? "gray" : undefined} aria-label="Progress" />
                    <span>{run.train_step} / {run.total_train_steps}</span>
                  </div>
                ) : DASH}
              </Table.Td>
              <Table.Td ta="right">{number(run.reward_mean)}</Table.Td>
              <Table.Td ta="right">{number(run.staleness_mean, 2)}{run.kind === "rl" && bound !== null && <span className={classes.bound}> / {bound}</span>}</Table.Td>
              <Table.Td ta="right">{run.kind === "rl" ? run.policy_version : DASH}</Table.Td>
              <Table.Td>{run.dataset.ref}</Table.Td>
              <Table.Td ta="right">{elapsed(run)}</Table.Td>
              <Table.Td ta="right" title={moment(run.created_at)}>{ago(run.created_at, now)}</Table.Td>
            </Table.Tr>
          );
        })}
      </Table.Tbody>
    </Table>
  );
}
