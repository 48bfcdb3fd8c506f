import { Button, Group, Progress, Table } from "@mantine/core";
import { IconArrowDown, IconArrowUp, IconCopy } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { Sweep, Trial } from "../api/schema.d.ts";
import { CopyId } from "../common/copy-id.tsx";
import { ago, DASH, moment, number } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Fact, Facts, PageHeader, Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { StatusBadge } from "../common/status.tsx";
import stacked from "../common/stacked.module.css";
import { BestCurve } from "./best-curve.tsx";
import { ParallelCoordinates } from "./parallel-coordinates.tsx";
import { SweepActions } from "./sweep-actions.tsx";
import classes from "./sweeps.module.css";
import { labels, progressText, sorted, valueText, type SortKey } from "./trials.ts";

const POLL_MILLISECONDS = 3_000;

/** Whether trials of a sweep can still change. Runs of a paused or canceled sweep end a moment later. */
function changes(sweep: Sweep | undefined): boolean {
  return sweep !== undefined && (sweep.status === "RUNNING" || (sweep.counts["running"] ?? 0) > 0);
}

export function SweepPage() {
  const { sweepId = "" } = useParams();
  const { data: sweep, error, isPending, refetch } = useQuery({ ...queries.sweep(sweepId), refetchInterval: (query) => (changes(query.state.data) ? POLL_MILLISECONDS : false) });
  const trials = useQuery({ ...queries.trials(sweepId), refetchInterval: changes(sweep) ? POLL_MILLISECONDS : false });
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const [active, setActive] = useState<number | null>(null);
  const navigate = useNavigate();
  if (isPending) return <Waiting />;
  if (sweep === undefined) return <ProblemNotice error={error} retry={() => void refetch()} />;
  const list = trials.data ?? [];
  const open = (trial: Trial) => { if (trial.run !== null) void navigate(`/runs/${trial.run.id}`); };
  return (
    <>
      <PageHeader
        title={sweep.name}
        aside={(
          <>
            <Button component={Link} to={`/sweeps/new?sweep=${sweep.id}`} variant="default" leftSection={<IconCopy size={14} />}>New sweep like it</Button>
            <SweepActions sweep={sweep} readOnly={readOnly} />
          </>
        )}
      >
        <Group gap={8}><StatusBadge status={sweep.status} /><span>{sweep.message}</span></Group>
      </PageHeader>
      <div className={classes.page}>
        <Panel><Summary sweep={sweep} /></Panel>
        <ProblemNotice error={trials.error} retry={() => void trials.refetch()} />
        {trials.isPending ? <Panel><Waiting label="Loading trials" /></Panel> : list.length === 0 ? <Panel><Empty title="No trials" /></Panel> : (
          <>
            <div className={classes.charts}>
              <Panel title="Parallel coordinates"><ParallelCoordinates sweep={sweep} trials={list} active={active} onActive={setActive} onOpen={open} /></Panel>
              <Panel title="Best so far" aside={sweep.plan.objective.metric}><BestCurve sweep={sweep} trials={list} active={active} /></Panel>
            </div>
            <TrialTable sweep={sweep} trials={list} active={active} onActive={setActive} />
          </>
        )}
      </div>
    </>
  );
}

function Summary({ sweep }: { sweep: Sweep }) {
  const { plan: { objective, method, stop, samples, seed }, best, counts, trials } = sweep;
  const open = (counts["waiting"] ?? 0) + (counts["running"] ?? 0);
  return (
    <>
      <Facts>
        <Fact label={`Best ${objective.metric}`} help={`The ${objective.goal === "max" ? "highest" : "lowest"} newest value of all trials.`}>{best === null ? DASH : <><b>{number(best.objective)}</b> {best.run === null ? `trial ${best.number}` : <Link to={`/runs/${best.run.id}`}>trial {best.number}</Link>}</>}</Fact>
        <Fact label="Trials">{progressText(sweep)}</Fact>
        <Fact label="Method">{method === "grid" ? "Grid, every point" : `${samples} random points, seed ${seed}`}</Fact>
        <Fact label="At the same time" help="Runs of this sweep that are active at once.">{sweep.max_parallel}</Fact>
        <Fact label="Stops early" help="Worse runs stop with a checkpoint. After the target no more runs start.">
          {stop === null ? "no" : [stop.at_step !== null ? `worse than ${number(stop.worse_than)} from step ${stop.at_step}` : "", stop.target !== null ? `at ${number(stop.target)}` : ""].filter(Boolean).join("; ")}
        </Fact>
        <Fact label="Created" help={moment(sweep.created_at)}>{ago(sweep.created_at)} by {sweep.created_by}</Fact>
        <Fact label="Id"><CopyId id={sweep.id} label={`${sweep.id.slice(0, 12)}…`} /></Fact>
      </Facts>
      <Progress mt={12} size={6} value={(100 * (trials - open)) / Math.max(1, trials)} aria-label="Trials that ended" />
    </>
  );
}

function TrialTable({ sweep, trials, active, onActive }: { sweep: Sweep; trials: Trial[]; active: number | null; onActive: (trial: number | null) => void }) {
  const [search, setSearch] = useSearchParams();
  const { parameters, objective } = sweep.plan;
  const names = labels(parameters.map(({ pointer }) => pointer));
  const written = search.get("sort") ?? "number";
  const [key, descending] = [written.replace(/^-/, "") as SortKey, written.startsWith("-")];
  const sortBy = (column: SortKey) => setSearch({ sort: column === key ? `${descending ? "" : "-"}${column}` : `${column === "objective" && objective.goal === "max" ? "-" : ""}${column}` }, { replace: true });
  const head = (column: SortKey, label: string, right = false) => (
    <Table.Th key={column} ta={right ? "right" : undefined} aria-sort={column === key ? (descending ? "descending" : "ascending") : undefined}>
      <button type="button" className={classes.sort} onClick={() => sortBy(column)} title={column.startsWith("/") ? column : undefined}>{label}{column === key && (descending ? <IconArrowDown size={12} aria-hidden /> : <IconArrowUp size={12} aria-hidden />)}</button>
    </Table.Th>
  );
  return (
    <Panel title="Trials" aside={<Link to={`/runs?sweep=${sweep.id}`}>In the run list</Link>} flush>
      <Table className={`tabular ${stacked.stacked}`} data-testid="trials">
        <Table.Thead>
          <Table.Tr>{head("number", "Trial")}{parameters.map(({ pointer }) => head(pointer as SortKey, names.get(pointer) ?? pointer, true))}<Table.Th>Status</Table.Th>{head("step", "Step", true)}{head("objective", objective.metric, true)}<Table.Th>Run</Table.Th></Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {sorted(trials, key, descending).map((trial) => (
            <Table.Tr key={trial.number} bg={trial.number === active ? "var(--accent-soft)" : undefined} onMouseEnter={() => onActive(trial.number)} onMouseLeave={() => onActive(null)} data-trial={trial.number}>
              <Table.Td data-label="Trial">{trial.number}{trial.number === sweep.best?.number && <b style={{ color: "var(--accent)" }}> best</b>}</Table.Td>
              {parameters.map(({ pointer }) => <Table.Td key={pointer} data-label={names.get(pointer) ?? pointer} ta="right" className="mono">{valueText(trial.values[pointer])}</Table.Td>)}
              <Table.Td data-label="Status"><StatusBadge status={trial.run?.status ?? trial.state} />{trial.skipped !== "" && <span className={classes.note}> {trial.skipped}</span>}</Table.Td>
              <Table.Td data-label="Step" ta="right">{trial.run === null ? DASH : trial.train_step}</Table.Td>
              <Table.Td data-label={objective.metric} ta="right">{number(trial.objective)}</Table.Td>
              <Table.Td data-label="Run" className={classes.runName}>{trial.run === null ? DASH : <Link to={`/runs/${trial.run.id}`}>{trial.run.name}</Link>}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Panel>
  );
}
