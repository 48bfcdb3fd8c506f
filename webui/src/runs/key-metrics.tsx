import { Progress, Tooltip } from "@mantine/core";
import type { ReactNode } from "react";

import type { Run } from "../api/schema.d.ts";
import { clock, DASH, moment, number, percent, words } from "../common/format.ts";
import { numberAt } from "../common/json.ts";
import { useNow } from "../common/use-now.ts";
import { showsPhase } from "./boot.ts";
import { elapsedSeconds } from "./elapsed.ts";
import { canStop, hasEnded } from "./ended.ts";
import { mean, newest } from "./format-metric.ts";
import { useMetricsVersion } from "./live.ts";
import type { MetricsStore } from "./metrics-store.ts";
import classes from "./run-page.module.css";

/** The key metrics of a run above its charts. */
export function KeyMetrics({ run, metrics, isCompact = false }: { run: Run; metrics: MetricsStore; isCompact?: boolean }) {
  useMetricsVersion(metrics);
  const now = useNow(1_000);
  const ended = hasEnded(run.status);
  const last = (name: string) => newest(metrics.lines(name));
  // For an ended run a rate is the mean over the whole run.
  const rate = (name: string) => (ended ? mean : newest)(metrics.lines(name));
  const rateSuffix = ended ? " (mean)" : "";
  const rewards = metrics.lines("reward/mean")[0]?.points.y ?? [];
  const average = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const gain = rewards.length >= 20 ? average(rewards.slice(-10)) - average(rewards.slice(0, 10)) : null;
  const isRl = run.kind === "rl";
  const step = run.train_step;
  const total = run.total_train_steps;
  const elapsed = elapsedSeconds(run, now);
  const steps = metrics.lines("time/step_seconds")[0]?.points;
  const pace = steps !== undefined && steps.at.length > 2 ? (steps.at.at(-1)! - steps.at[Math.max(0, steps.at.length - 11)]!) / Math.min(10, steps.at.length - 1) : null;
  const secondsLeft = canStop(run.status) && run.status !== "PAUSED" && pace !== null ? Math.max(0, total - step) * pace : null;
  const bound = run.live.max_staleness ?? numberAt(run.spec, "staleness", "max");
  return (
    <dl className={classes.metrics} data-compact={isCompact} data-testid="key-metrics">
      <div className={classes.wide}>
        <dt>{isRl ? "Train step" : "Step"}</dt>
        <dd>
          {number(step)} <small>of {number(total)}</small>
          <Progress value={(100 * step) / Math.max(1, total)} size={4} mt={4} aria-label="Completed train steps" />
        </dd>
        {showsPhase(run) && run.progress !== null && (
          <dd className={classes.phase}>{words(run.progress.phase)}{run.progress.total > 0 ? ` ${run.progress.done} of ${run.progress.total}` : ""}{run.progress.message !== "" ? `: ${run.progress.message}` : ""}</dd>
        )}
      </div>
      {isRl ? (
        <>
          <KeyMetric label="Reward" about={["Mean reward of the trajectories in the last trained batch, and how far the mean of the last 10 steps is from that of the first 10.", "concepts/objective"]} note={gain === null ? "of the last batch" : `${gain >= 0 ? "+" : "−"}${Math.abs(gain).toFixed(2)} since start`}>{number(last("reward/mean"), 3)}</KeyMetric>
          <KeyMetric label="Mean staleness" about={["Policy versions between the oldest token of a trajectory and its training, mean of the last trained batch.", "concepts/staleness"]} note={`max ${number(last("staleness/max"))}, bound η = ${bound ?? DASH}`}>{number(last("staleness/mean"), 2)}</KeyMetric>
          <KeyMetric label="Policy version" about={["Version of the newest trained weights. The engines may still use an older one.", "concepts/interruption"]} note={`engine at ${number(last("engine/version"))}`}>{number(last("policy/version"))}</KeyMetric>
          <KeyMetric about={["Tokens per second that the engines sample.", "reference/metrics"]} label={`Generated${rateSuffix}`} note="tokens/s">{number(rate("perf/generated_tokens_per_second"), 0)}</KeyMetric>
          <KeyMetric about={["Tokens per second that the trainer trains on.", "reference/metrics"]} label={`Trained${rateSuffix}`} note="tokens/s">{number(rate("perf/trained_tokens_per_second"), 0)}</KeyMetric>
          <KeyMetric label="Trainer idle" about={["Part of the last train step in which the trainer waited for a batch.", "concepts/gate"]} note={`rollout ${percent(rate("idle/rollout_frac"), 0)}${rateSuffix}`}>{percent(rate("idle/trainer_frac"), 0)}</KeyMetric>
        </>
      ) : run.kind === "dpo" ? (
        <>
          <KeyMetric label="Loss" about={["Mean DPO loss of the pairs in the last batch; 0.693 before the first step.", "how-to/preferences"]} note={`validation ${number(last("dpo/validation_loss"), 3)}`}>{number(last("dpo/loss"), 3)}</KeyMetric>
          <KeyMetric label="Ranked right" about={["Part of the last batch's pairs whose chosen completion has the larger reward.", "how-to/preferences"]} note={`validation ${percent(last("dpo/validation_accuracy"))}`}>{percent(last("dpo/accuracy"))}</KeyMetric>
          <KeyMetric label="Margin" about={["Mean implicit reward of the chosen minus the rejected completion.", "how-to/preferences"]} note={`validation ${number(last("dpo/validation_margin"), 2)}`}>{number(last("dpo/margin"), 2)}</KeyMetric>
          <KeyMetric label={`Trained${rateSuffix}`} about={["Tokens per second that the trainer trains on.", "reference/metrics"]} note="tokens/s">{number(rate("perf/trained_tokens_per_second"), 0)}</KeyMetric>
        </>
      ) : (
        <>
          <KeyMetric label="Loss" about={["Mean negative log-probability per token of the answers in the last batch.", "concepts/objective"]} note="token mean (nats)">{number(last("sft/loss"), 3)}</KeyMetric>
          <KeyMetric label="Greedy accuracy" about={["Part of the validation rows that the model answers right without sampling.", "reference/metrics"]} note={`stops at ${percent(numberAt(run.spec, "sft", "stop_at_greedy_accuracy"), 0)}`}>{percent(last("sft/greedy_accuracy"))}</KeyMetric>
          <KeyMetric label="Learning rate" about={["Step size of the optimizer in the last step.", "reference/run-spec"]} note="">{last("sft/learning_rate")?.toExponential(1) ?? DASH}</KeyMetric>
        </>
      )}
      <KeyMetric about={["Time since the start of the run, without pauses.", "reference/lifecycle"]} label={run.ended_at === null ? "Elapsed" : "Took"} note={secondsLeft === null ? (run.started_at === null ? "not started" : `started ${moment(run.started_at).split(", ").at(-1)}`) : `about ${clock(secondsLeft)} left`}>
        {elapsed === null ? DASH : clock(elapsed)}
      </KeyMetric>
    </dl>
  );
}

type KeyMetricProps = { label: string; note: string; about: [help: string, concept: string]; children: ReactNode };

/** One figure. Its label says on hover or focus what it is, and opens its page of the documentation. */
function KeyMetric({ label, note, about: [help, concept], children }: KeyMetricProps) {
  return (
    <div data-metric={label}>
      <dt><Tooltip label={`${help} Opens the documentation.`} multiline maw={280} events={{ hover: true, focus: true, touch: true }}><a href={`/docs/${concept}`} target="_blank" rel="noreferrer">{label}</a></Tooltip></dt>
      <dd>{children}</dd>
      <dd className={classes.phase}>{note}</dd>
    </div>
  );
}
