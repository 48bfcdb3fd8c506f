import "@mantine/core/styles/NumberInput.css";
import { NumberInput, Tooltip } from "@mantine/core";
import { IconCheck, IconX } from "@tabler/icons-react";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { Run, Trajectory } from "../api/schema.d.ts";
import { number, words } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import classes from "./trajectories-tab.module.css";
import { ENVIRONMENT, spansOf, versionsOf } from "./version-spans.ts";

/** Samples of complete groups: the prompt, its completions, and the policy version of each part of a completion. */
export function TrajectoriesTab({ run }: { run: Run }) {
  const group = useSearchParams()[0].get("group") ?? undefined;
  const query = useInfiniteQuery(queries.runTrajectories(run.id, group));
  const [minVersions, setMinVersions] = useState<number | string>(1);
  const all = query.data?.pages.flatMap((page) => page.data) ?? [];
  const shown = all.filter((trajectory) => versionsOf(trajectory) >= Number(minVersions));
  return (
    <>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <div className={classes.tools}>
        <NumberInput label="Minimum policy versions" w={210} min={1} max={20} value={minVersions} onChange={setMinVersions} />
        <span>{shown.length} of {all.length} loaded</span>
        {group !== undefined && <span>of group <span className="mono">{group}</span> · <Link to="?tab=trajectories">Show all groups</Link></span>}
      </div>
      {query.isPending ? <Waiting /> : query.data === undefined ? null : shown.length === 0 ? (
        <Empty title="No trajectories">{all.length === 0 ? group !== undefined ? "No trajectory of this group was sampled. It may not be trained yet." : "All trajectories of two groups per train step appear here." : "No loaded trajectory spans that many versions."}</Empty>
      ) : groupsOf(shown).map((group) => <GroupCard key={group[0]!.id} group={group} />)}
      <More query={query} />
    </>
  );
}

/** Group trajectories by attempt, step and group, in list order. */
function groupsOf(trajectories: Trajectory[]): Trajectory[][] {
  const groups = new Map<string, Trajectory[]>();
  for (const trajectory of trajectories) {
    const key = `${trajectory.attempt}|${trajectory.step}|${trajectory.group_id}`;
    groups.set(key, [...(groups.get(key) ?? []), trajectory]);
  }
  return [...groups.values()];
}

function GroupCard({ group }: { group: Trajectory[] }) {
  const first = group[0]!;
  const mean = group.reduce((sum, trajectory) => sum + trajectory.reward, 0) / group.length;
  return (
    <article className={classes.card}>
      <header className={classes.head}>
        <b className="tabular">step {first.step}</b>
        <span className="mono">group {first.group_id}</span>
        {first.answer !== "" && <span>answer <code className="mono">{first.answer}</code></span>}
        <span className={classes.mean}>mean reward {number(mean)} over {group.length}</span>
      </header>
      <p className={classes.prompt}>{first.prompt}</p>
      {group.map((trajectory) => <Completion key={trajectory.id} trajectory={trajectory} best={Math.max(...group.map((entry) => entry.reward))} />)}
    </article>
  );
}

/** The reward parts and the result label that a reward function returned with its score. */
function RewardParts({ trajectory }: { trajectory: Trajectory }) {
  const parts = Object.entries(trajectory.reward_parts).map(([name, value]) => `${name} ${number(value)}`);
  const texts = [...parts, ...(trajectory.reward_result === "" ? [] : [words(trajectory.reward_result).toLowerCase()])];
  return texts.length === 0 ? null : <span className={`${classes.parts} tabular`} data-testid="reward-parts">{texts.join(" · ")}</span>;
}

function Completion({ trajectory, best }: { trajectory: Trajectory; best: number }) {
  const { spans, isExact } = spansOf(trajectory);
  const isBest = trajectory.reward >= best && trajectory.reward > 0;
  const turns = spans.filter((span) => span.version === ENVIRONMENT).length + 1;
  const versions = versionsOf(trajectory);
  const summary = `${versions <= 1 ? `version ${spans[0]!.version}` : `${versions} versions`}${turns === 1 ? "" : `, ${turns} turns`}${trajectory.finish_reason === "stop" ? "" : `, ended: ${words(trajectory.finish_reason).toLowerCase()}`}${isExact || spans.length === 1 ? "" : ", boundaries approximate"}`;
  return (
    <div className={classes.completion} data-testid="trajectory" data-spans={spans.length}>
      <span className={classes.reward} data-good={isBest}>
        {isBest ? <IconCheck size={13} stroke={2.4} aria-label="best in group" /> : <IconX size={13} stroke={2.4} aria-label="not best in group" />} {number(trajectory.reward)}
      </span>
      <p>
        {spans.map((span, index) => (
          span.version === ENVIRONMENT
            ? <Tooltip key={index} label={`Environment output, ${span.tokens} tokens, not trained`}>
              <span className={classes.environment}>{span.text}</span>
            </Tooltip>
            : <Tooltip key={index} label={`Policy version ${span.version}, ${span.tokens} tokens`}>
              <span className={classes.span} data-tint={span.version % 6}>
                {spans.length > 1 && <sup>v{span.version}</sup>}
                {span.text}
              </span>
            </Tooltip>
        ))}
      </p>
      <small>
        {summary}
        <RewardParts trajectory={trajectory} />
      </small>
    </div>
  );
}
