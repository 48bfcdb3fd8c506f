import { Button, Group, Progress, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { RewardTest, RunDetail } from "../api/schema.d.ts";
import { ago, grouped, moment, number, percent } from "../common/format.ts";
import { Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { PendingPage } from "../common/pending-page.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { StatusBadge } from "../common/status.tsx";
import { SpecSnippet } from "../functions/spec-snippet.tsx";
import { hasEnded } from "../runs/ended.ts";
import { examples, figures, findings, probeResults, PROBES, type Example } from "./report.ts";
import { ResultBadge } from "./result-badge.tsx";
import classes from "./reward-tests.module.css";
import { rewardLines, startLink } from "./use-in-run.ts";

const POLL_MILLISECONDS = 2_000;

/** One reward test: its progress while it runs, then its report. */
export function RewardTestPage() {
  const { testId = "" } = useParams();
  const { data: test, error, refetch } = useQuery({
    ...queries.rewardTest(testId),
    refetchInterval: (query) => (query.state.data?.result === "" && !hasEnded(query.state.data.status) ? POLL_MILLISECONDS : false),
  });
  const waits = test?.result === "" && !hasEnded(test.status);
  const run = useQuery({ ...queries.run(test?.run ?? ""), enabled: test !== undefined, refetchInterval: waits ? POLL_MILLISECONDS : false }).data;
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  if (test === undefined) return <PendingPage title="Test of a reward" error={error} retry={refetch} />;
  const again = `/functions/tests/new?${new URLSearchParams({ reward: test.reward, dataset: test.dataset.ref, from: test.run })}`;
  return (
    <>
      <PageHeader title={`Test of ${test.reward}`} aside={readOnly === null && <Button component={Link} to={again} variant="default">Test again</Button>}>
        <Group gap={8}>
          <ResultBadge test={test} />
          <span>on {test.dataset.ref}, by {test.created_by}, <span title={moment(test.created_at)}>{ago(test.created_at)}</span></span>
          <Link to={`/runs/${test.run}?tab=logs`}>Logs of the test</Link>
        </Group>
      </PageHeader>
      {test.report === null ? <Pending test={test} run={run} /> : <Report test={test} run={run} />}
    </>
  );
}

/** A test without a report: it waits, runs or failed. */
function Pending({ test, run }: { test: RewardTest; run: RunDetail | undefined }) {
  if (hasEnded(test.status)) {
    return (
      <Panel title="No report">
        <p className={classes.note} role="alert"><b>{run?.reason_message || test.reason_message || "the test ended before it wrote a report"}.</b> {run?.advice}</p>
      </Panel>
    );
  }
  const progress = run?.progress;
  return (
    <Panel title="Progress">
      <div className={classes.progress} role="status" data-testid="test-progress">
        <StatusBadge status={test.status} />
        {progress ? (
          <>
            <span>{progress.message || (progress.phase === "reward_test" ? "Scoring completions" : "Preparing")}: {grouped(progress.done)} of {grouped(progress.total)}</span>
            <Progress value={(100 * progress.done) / Math.max(1, progress.total)} aria-label="Scored completions" />
          </>
        ) : <span>{test.pending_reason || "The node starts the reward service."}</span>}
      </div>
    </Panel>
  );
}

function Report({ test, run }: { test: RewardTest; run: RunDetail | undefined }) {
  const { report } = test;
  const found = findings(report);
  return (
    <div className={classes.page}>
      <dl className={classes.figures} data-testid="test-figures">
        {figures(report).map(({ label, value, detail, help }) => <div key={label} title={help}><dt>{label}</dt><dd>{value}<small>{detail}</small></dd></div>)}
      </dl>
      <div className={classes.columns}>
        <div className={classes.column}>
          <Panel title="Findings">
            {found.length === 0 ? <p className={classes.good}>Nothing was found: no exceptions, the same score twice, and no probe that succeeds.</p> : (
              <ul className={classes.findings} data-testid="findings">
                {found.map(({ level, code, message, advice }) => (
                  <li key={code} data-level={level}><b>{level === "red" ? "Red" : level === "amber" ? "Amber" : "Note"}:</b> {message}.{advice !== "" && <p>{advice}</p>}</li>
                ))}
              </ul>
            )}
          </Panel>
          <Probes test={test} />
          <Examples title="Completions without a score" list={examples(report, "exceptions")} />
          <Examples title="Completions with two scores" list={examples(report, "determinism")} />
        </div>
        <div className={classes.column}>
          <Panel title="Use it in a run">
            {test.result === "red" && <p className={classes.note} style={{ marginBottom: 8 }}>Fix the red findings first: a run learns what the reward pays for.</p>}
            {run === undefined ? <Waiting /> : <SpecSnippet text={rewardLines(run.spec.reward)} start={startLink(test, run.spec)} />}
          </Panel>
          <Panel title="What counts">
            <p className={classes.note}>{test.complete
              ? "This test is complete: all probes, and enough rows. Where a project accepts only tested rewards, its result decides."
              : "This test is not complete: it has fewer rows or probes than the default, or a success score that no completion reaches. Where a project accepts only tested rewards, it does not count."}</p>
          </Panel>
        </div>
      </div>
    </div>
  );
}

function Probes({ test }: { test: RewardTest }) {
  const results = probeResults(test.report);
  if (results.length === 0) return null;
  return (
    <Panel title="Reward-hacking probes" aside="canned completions that deserve no reward" flush>
      <Table className="tabular" data-testid="probes">
        <Table.Thead><Table.Tr><Table.Th>Probe</Table.Th><Table.Th ta="right">Mean score</Table.Th><Table.Th ta="right">Counts as right</Table.Th><Table.Th>Result</Table.Th></Table.Tr></Table.Thead>
        <Table.Tbody>
          {results.map(({ name, tried, mean, max, successShare, example, outcome, says }) => (
            <Table.Tr key={name} style={{ verticalAlign: "top" }}>
              <Table.Td><span className={classes.probe}>{PROBES[name].label}</span><span className={classes.small}>{PROBES[name].tries}</span></Table.Td>
              <Table.Td ta="right">{number(mean)}<span className={classes.small}>highest {number(max)}</span></Table.Td>
              <Table.Td ta="right">{percent(successShare, 0)}<span className={classes.small}>of {grouped(tried)} rows</span></Table.Td>
              <Table.Td>
                <span className={outcome === "gamed" ? classes.gamed : outcome === "safe" ? classes.safe : undefined}>{outcome === "gamed" ? "Succeeds. " : outcome === "safe" ? "✓ " : ""}{says}</span>
                {example !== null && outcome === "gamed" && <pre className={classes.completion} tabIndex={0} role="region" aria-label={`Example of the probe ${PROBES[name].label}`}>{example === "" ? "(empty)" : example}</pre>}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Panel>
  );
}

function Examples({ title, list }: { title: string; list: Example[] }) {
  if (list.length === 0) return null;
  return (
    <Panel title={title} aside={`the first ${list.length}`}>
      {list.map(({ row, source, completion, detail }, index) => (
        <div key={index} style={{ fontSize: "0.8125rem", marginBottom: 8 }}>
          <b>Row {row}</b>, {source in PROBES ? `probe ${PROBES[source as keyof typeof PROBES].label}` : source}: <span style={{ overflowWrap: "anywhere" }}>{detail}</span>
          <pre className={classes.completion} tabIndex={0} role="region" aria-label={`${title}, ${index + 1}`}>{completion === "" ? "(empty)" : completion}</pre>
        </div>
      ))}
    </Panel>
  );
}
