import { Tooltip } from "@mantine/core";
import { IconArrowRight, IconLock, IconLockOpen } from "@tabler/icons-react";
import { Fragment, type ReactNode } from "react";

import { counts, numberAt, object, sum, textAt, type Json } from "../common/json.ts";
import { grouped, words } from "../common/format.ts";
import classes from "./pipeline-strip.module.css";

/** Why the admission gate hands out no more groups, in a reader's words. */
const REFUSALS: Record<string, string> = {
  staleness: "Another group would be trained too many versions late: the next policy version opens places.",
  concurrency: "As many groups as rollout.max_concurrent_groups allows are in hand.",
  engine_behind: "An engine is still loading the newest weights.",
  paused: "Rollouts are paused.",
  no_prompts: "The dataset has no further prompt.",
  last_groups: "Every group that a train step can still use is drawn; the last ones are under way.",
  run_ending: "Every group that a train step can still use is finished.",
};

type Stage = { name: string; count: number | null; note: ReactNode; help: string };

/** Where the run's groups are right now: prompts, running, reward, buffer, training. */
export function PipelineStrip({ pipeline, groupsPerStep, ended }: { pipeline: Json | null; groupsPerStep: number | null; ended: boolean }) {
  const ledger = object(pipeline?.["ledger"]);
  const dropped = counts(ledger?.["dropped"]);
  const refusal = textAt(pipeline, "gate", "refusal");
  const free = numberAt(pipeline, "gate", "admissible");
  const [drawn, waiting, running, buffered, taken, trained] = ["drawn", "waiting", "running", "buffered", "taken", "trained"].map((name) => numberAt(ledger, name));
  const scored = trained === null ? null : (trained ?? 0) + (taken ?? 0) + (buffered ?? 0);
  const stages: Stage[] = [
    { name: "Prompts", count: drawn ?? null, note: waiting ? `${grouped(waiting)} to be claimed again` : "drawn", help: "Prompts drawn from the dataset, in seeded order, each once." },
    { name: "Running", count: running ?? null, note: "groups being generated", help: "Groups whose completions an engine is sampling." },
    {
      name: "Reward", count: scored, note: "groups scored",
      help: "Groups whose every trajectory has its reward. An error drops the group, it never counts as 0.",
    },
    {
      name: "Buffer", count: buffered ?? null, note: groupsPerStep === null ? "groups ready" : `of ${groupsPerStep} for a step`,
      help: "Finished groups that wait for a train step; oldest first, each used once.",
    },
    {
      name: "Training", count: taken ?? null, note: trained === null ? "groups taken" : `${grouped(trained)} trained`,
      help: "Groups of the train step under way, and groups trained so far.",
    },
  ];
  const closed = refusal !== "" && !ended;
  return (
    <section className={classes.strip} aria-label="Pipeline" data-testid="pipeline" data-refusal={refusal}>
      {stages.map((stage, index) => (
        <Fragment key={stage.name}>
          {index > 0 && (index === 1
            ? <Gate closed={closed} ended={ended} refusal={refusal} free={free} />
            : <IconArrowRight size={15} className={classes.arrow} aria-hidden />)}
          <Tooltip label={stage.help}>
            <div className={classes.stage} data-stage={stage.name.toLowerCase()} data-count={stage.count ?? ""}>
              <span className={classes.name}>{stage.name}</span>
              <span className={`${classes.count} tabular`}>{grouped(stage.count)}</span>
              <span className={classes.note}>{stage.note}</span>
              {stage.name === "Buffer" && groupsPerStep !== null && (
                <span className={classes.fill} aria-hidden><i style={{ width: `${Math.min(100, (100 * (buffered ?? 0)) / groupsPerStep)}%` }} /></span>
              )}
            </div>
          </Tooltip>
        </Fragment>
      ))}
      {sum(dropped) > 0 && (
        <div className={classes.dropped}>
          {grouped(sum(dropped))} dropped: {dropped.map(([reason, count]) => `${words(reason).toLowerCase()} ${grouped(count)}`).join(", ")}
        </div>
      )}
    </section>
  );
}

function Gate({ closed, ended, refusal, free }: { closed: boolean; ended: boolean; refusal: string; free: number | null }) {
  const state = ended ? "over" : closed ? "closed" : free === null ? "unknown" : "open";
  const label = { over: "run ended", closed: words(refusal).toLowerCase(), unknown: "gate", open: `${grouped(free)} free` }[state];
  const help = closed ? (REFUSALS[refusal] ?? words(refusal)) : "Free places of the admission gate: how many groups may start now without breaking the staleness bound.";
  return (
    <Tooltip label={help}>
      <div className={classes.gate} data-state={state} data-testid="gate">
        {closed || ended ? <IconLock size={14} aria-hidden /> : <IconLockOpen size={14} aria-hidden />}
        <span>{label}</span>
      </div>
    </Tooltip>
  );
}
