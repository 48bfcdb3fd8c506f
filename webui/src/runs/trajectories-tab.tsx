import { NumberInput, Tooltip } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";

import * as queries from "../api/queries.ts";
import type { Run, Trajectory } from "../api/schema.d.ts";
import { number, words } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import classes from "./trajectories-tab.module.css";
import { spansOf } from "./version-spans.ts";

/** Sampled completions; the background of the text says which policy version wrote it. */
export function TrajectoriesTab({ run }: { run: Run }) {
  const query = useInfiniteQuery(queries.runTrajectories(run.id));
  const [least, setLeast] = useState<number | string>(1);
  const all = query.data?.pages.flatMap((page) => page.data) ?? [];
  const shown = all.filter((trajectory) => trajectory.policy_versions.length / 2 >= Number(least));
  return (
    <>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <div className={classes.tools}>
        <NumberInput label="At least this many versions inside" w={210} min={1} max={20} value={least} onChange={setLeast} />
        <span>{shown.length} of {all.length} loaded</span>
      </div>
      {query.isPending ? <Waiting /> : shown.length === 0 ? (
        <Empty title="No sampled trajectory">{all.length === 0 ? "One group in a few leaves its trajectories here once it was trained." : "None of those loaded spans so many versions."}</Empty>
      ) : shown.map((trajectory) => <TrajectoryCard key={trajectory.id} trajectory={trajectory} />)}
      <More query={query} />
    </>
  );
}

function TrajectoryCard({ trajectory }: { trajectory: Trajectory }) {
  const { spans, isExact } = spansOf(trajectory);
  const good = trajectory.reward > 0;
  return (
    <article className={classes.card} data-testid="trajectory" data-spans={spans.length}>
      <header className={classes.head}>
        <b className="tabular">reward {number(trajectory.reward)}</b>
        <span className={classes.mark} data-good={good}>{good ? "right" : "wrong"}</span>
        <span>step {trajectory.step}</span>
        <span className="mono">group {trajectory.group_id}</span>
        <span>ended: {words(trajectory.finish_reason).toLowerCase()}</span>
        {trajectory.answer !== "" && <span>answer <code className="mono">{trajectory.answer}</code></span>}
        <span className={classes.versions}>{spans.length === 1 ? `version ${spans[0]!.version}` : `${spans.length} versions inside`}{!isExact && spans.length > 1 ? ", bounds approximate" : ""}</span>
      </header>
      <p className={classes.prompt}>{trajectory.prompt}</p>
      <p className={classes.completion}>
        {spans.map((span, index) => (
          <Tooltip key={index} label={`Policy version ${span.version}, ${span.tokens} tokens`}>
            <span className={classes.span} data-tint={index % 6}>
              {spans.length > 1 && <sup>v{span.version}</sup>}
              {span.text}
            </span>
          </Tooltip>
        ))}
      </p>
    </article>
  );
}
