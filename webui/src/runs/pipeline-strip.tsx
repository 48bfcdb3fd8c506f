import { Tooltip } from "@mantine/core";
import { IconArrowRight, IconLock, IconLockOpen } from "@tabler/icons-react";
import { Fragment, type ReactNode } from "react";

import { counts, numberAt, object, sum, textAt, type Json } from "../common/json.ts";
import { grouped, words } from "../common/format.ts";
import classes from "./pipeline-strip.module.css";

/** Why the admission gate is closed, by the reason that the controller reports. */
const CLOSED_REASONS: Record<string, string> = {
  staleness: "Another group would exceed max staleness. The next policy version adds capacity.",
  concurrency: "rollout.max_concurrent_groups groups are in flight.",
  engine_behind: "An engine is still loading the newest weights.",
  paused: "Rollouts are paused.",
  no_prompts: "The dataset has no more prompts.",
  last_groups: "All groups that the remaining train steps need are sampled. The last ones are running.",
  run_ending: "All groups that the remaining train steps need are finished.",
};

type Stage = { name: string; count: number | null; note: ReactNode; help: string };

/** The number of groups in each stage: prompts, running, reward, buffer, training. */
export function PipelineStrip({ pipeline, groupsPerStep, ended }: { pipeline: Json | null; groupsPerStep: number | null; ended: boolean }) {
  const ledger = object(pipeline?.["ledger"]);
  const dropped = counts(ledger?.["dropped"]);
  const refusal = textAt(pipeline, "gate", "refusal");
  const free = numberAt(pipeline, "gate", "admissible");
  const [sampled, waiting, running, buffered, inTraining, trained] = ["drawn", "waiting", "running", "buffered", "taken", "trained"].map((name) => numberAt(ledger, name));
  const scored = trained === null ? null : (trained ?? 0) + (inTraining ?? 0) + (buffered ?? 0);
  const stages: Stage[] = [
    { name: "Prompts", count: sampled ?? null, note: waiting ? `${grouped(waiting)} waiting for a worker` : "sampled", help: "Prompts sampled from the dataset, in seeded order, each once." },
    { name: "Running", count: running ?? null, note: "groups being generated", help: "Groups whose completions the engines are generating." },
    {
      name: "Reward", count: scored, note: "groups scored",
      help: "Groups with a reward for every trajectory. A reward error drops the group and never counts as 0.",
    },
    {
      name: "Buffer", count: buffered ?? null, note: groupsPerStep === null ? "groups ready" : `of ${groupsPerStep} per step`,
      help: "Finished groups that wait for a train step. The trainer uses the oldest first, each once.",
    },
    {
      name: "Training", count: inTraining ?? null, note: trained === null ? "groups in training" : `${grouped(trained)} trained`,
      help: "Groups in the current train step, and groups trained so far.",
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
          {grouped(sum(dropped))} {sum(dropped) === 1 ? "group" : "groups"} dropped: {dropped.map(([reason, count]) => `${words(reason).toLowerCase()} ${grouped(count)}`).join(", ")}
        </div>
      )}
    </section>
  );
}

function Gate({ closed, ended, refusal, free }: { closed: boolean; ended: boolean; refusal: string; free: number | null }) {
  const state = ended ? "ended" : closed ? "closed" : free === null ? "unknown" : "open";
  const label = { ended: "run ended", closed: words(refusal).toLowerCase(), unknown: "gate", open: `${grouped(free)} free` }[state];
  const help = closed ? (CLOSED_REASONS[refusal] ?? words(refusal)) : "Capacity of the admission gate: how many groups can start now within max staleness.";
  return (
    <Tooltip label={help}>
      <div className={classes.gate} data-state={state} data-testid="gate">
        {closed || ended ? <IconLock size={14} aria-hidden /> : <IconLockOpen size={14} aria-hidden />}
        <span>{label}</span>
      </div>
    </Tooltip>
  );
}
