import { SegmentedControl } from "@mantine/core";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { useSearchParams } from "react-router";

import * as queries from "../../api/queries.ts";
import type { Run, WholeTrajectory } from "../../api/schema.d.ts";
import { CopyId } from "../../common/copy-id.tsx";
import { DASH, duration, grouped, moment, number, words } from "../../common/format.ts";
import { ProblemNotice, Waiting } from "../../common/notices.tsx";
import { Fact, Facts } from "../../common/panel.tsx";
import { GroupMembers } from "./group-members.tsx";
import { isWholeGroup, meanReward, sampledText } from "./group-summary.ts";
import { Prompt } from "./prompt.tsx";
import classes from "./reader.module.css";
import { piecesOf } from "./tokens.ts";
import { TokenText } from "./token-text.tsx";
import { COLORINGS, colorings, type Coloring } from "./coloring.ts";
import { versionsText } from "./version-spans.ts";

const SHOWN_MEMBERS = 200;

type Props = { run: Run; id: string; groupSize: number | null; onOpen: (id: number) => void };

/** One trajectory: its prompt, its group, and its completion token by token. */
export function Reader({ run, id, groupSize, onOpen }: Props) {
  const { data: whole, error, isPlaceholderData, refetch } = useQuery({ ...queries.runTrajectory(run.id, id), placeholderData: (old) => old });
  if (error !== null) return <ProblemNotice error={error} retry={() => void refetch()} />;
  if (whole === undefined) return <Waiting />;
  return (
    <article className={classes.reader} data-testid="reader" data-trajectory={whole.id} aria-busy={isPlaceholderData}>
      <header className={classes.head}>
        <h2>Step {whole.step}, group <span className="mono">{whole.group_id}</span></h2>
        <CopyId id={`${window.location.origin}/runs/${run.id}?tab=trajectories&trajectory=${whole.id}`} label="link" />
        <span title={moment(new Date(whole.at * 1000).toISOString())}>{whole.row !== null && `row ${grouped(whole.row)} of the dataset`}</span>
        {whole.attempt > 1 && <span>attempt {whole.attempt}</span>}
        {whole.answer !== "" && <span>answer <code className="mono">{whole.answer}</code></span>}
      </header>
      <Prompt text={whole.prompt} />
      <Group run={run} whole={whole} groupSize={groupSize} onOpen={onOpen} />
      <Completion whole={whole} />
    </article>
  );
}

function Group({ run, whole, groupSize, onOpen }: { run: Run; whole: WholeTrajectory; groupSize: number | null; onOpen: (id: number) => void }) {
  const filter = { group: whole.group_id, step_from: whole.step, step_to: whole.step, attempt: whole.attempt };
  const { data, error, refetch } = useInfiniteQuery(queries.runTrajectories(run.id, filter, SHOWN_MEMBERS));
  const members = useMemo(() => [...(data?.pages[0]?.data ?? [])].sort((one, other) => (one.member ?? 0) - (other.member ?? 0) || one.id - other.id), [data]);
  if (error !== null) return <ProblemNotice error={error} retry={() => void refetch()} />;
  if (data === undefined) return <Waiting label="Loading the group" />;
  return (
    <section aria-label="Group">
      <p className={classes.group} data-testid="group-summary">
        <b>Group</b> <span>{sampledText(members, groupSize)}</span>
        {isWholeGroup(members) && <span className={classes.mean}>mean reward {number(meanReward(members))}</span>}
      </p>
      <GroupMembers members={members} shown={whole.id} onOpen={onOpen} />
    </section>
  );
}

function Completion({ whole }: { whole: WholeTrajectory }) {
  const [search, setSearch] = useSearchParams();
  const content = useMemo(() => piecesOf(whole), [whole]);
  const possible = colorings(content);
  const wanted = search.get("color") as Coloring | null;
  const coloring = wanted !== null && possible.includes(wanted) ? wanted : "version";
  const [isAll, setAll] = useState(false);
  useEffect(() => setAll(false), [whole.id]);
  const { timeline } = whole;
  return (
    <section aria-label="Completion">
      <div className={classes.tools}>
        <b>Completion</b>
        <SegmentedControl
          size="xs" aria-label="Color of the tokens" value={coloring} data={possible.map((value) => ({ value, label: COLORINGS[value].label }))}
          onChange={(value) => setSearch((old) => { if (value === "version") old.delete("color"); else old.set("color", value); return old; }, { replace: true })}
        />
        {!content.byToken && <span className={classes.note}>{whole.token_ids === null ? "The job reported no single tokens for this trajectory" : "The tokens of this text cannot be told apart"}{content.isExact ? "." : ": the borders between versions are approximate."}</span>}
      </div>
      <TokenText key={whole.id} pieces={content.pieces} byToken={content.byToken} coloring={coloring} isAll={isAll} onAll={() => setAll(true)} />
      <div className={classes.facts}><Facts>
        <Fact label="Reward">{number(whole.reward)}</Fact>
        {whole.score !== null && whole.score !== whole.reward && <Fact label="Score" help="The reward function's own value, before scale and bias">{number(whole.score)}</Fact>}
        {Object.entries(whole.reward_parts).map(([name, value]) => <Fact key={name} label={`Part: ${name}`} help="This part's own score">{number(value)}</Fact>)}
        {whole.reward_result !== "" && <Fact label="Reward result" help="The result that the reward function named">{words(whole.reward_result)}</Fact>}
        <Fact label="Ended by" help="How its last turn ended">{{ stop: "Stop token", length: "Length limit", abort: "Abort" }[whole.finish_reason] ?? words(whole.finish_reason)}</Fact>
        <Fact label="Tokens">{grouped(whole.tokens)}</Fact>
        <Fact label="Versions" help="Oldest and newest policy version that sampled its tokens">{versionsText(whole) || DASH}</Fact>
        <Fact label="Staleness" help="Version that trained it (the step before it) less its oldest version">{whole.low_version === null ? DASH : whole.step - 1 - whole.low_version}</Fact>
        {timeline.turns !== undefined && <Fact label="Turns">{timeline.turns}</Fact>}
        {timeline.tool_calls !== undefined && <Fact label="Tool calls">{timeline.tool_calls}</Fact>}
        {timeline.interruptions !== undefined && <Fact label="Interruptions" help="How often a weight load stopped it">{timeline.interruptions}</Fact>}
        {timeline.generate_seconds !== undefined && <Fact label="Generated in">{duration(timeline.generate_seconds)}</Fact>}
        {timeline.reward_seconds !== undefined && <Fact label="Scored in">{duration(timeline.reward_seconds)}</Fact>}
      </Facts></div>
      {whole.reward_text !== "" && (
        <details className={classes.judge}>
          <summary>What the judge wrote</summary>
          <pre>{whole.reward_text}</pre>
        </details>
      )}
    </section>
  );
}
