import type { Run } from "../api/schema.d.ts";
import { mean as meanOf, type Points } from "../charts/series.ts";
import { clock, compact, duration, number, percent } from "../common/format.ts";
import { elapsedSeconds } from "../runs/elapsed.ts";
import type { MetricsStore } from "../runs/metrics-store.ts";
import type { RunClock } from "../runs/run-axis.ts";

/** What is known of a run in a comparison. */
export type Facts = { run: Run; metrics: MetricsStore; clock: RunClock; now: number };

export type HeadlineColumn = {
  id: string;
  label: string;
  help: string;
  /** which direction is good; null where neither is */
  better: "higher" | "lower" | null;
  /** how a difference reads: "+0.12", "+3.1 points" or "1.8×" */
  difference: "amount" | "points" | "ratio";
  format: (value: number) => string;
  /** null: the run has no such result. `target` is the baseline's reward. */
  value: (facts: Facts, target: number | null) => number | null;
};

const LAST_STEPS = 10;

function points(metrics: MetricsStore, name: string): Points | null {
  const line = metrics.lines(name).find(({ axis }) => axis === "step") ?? null;
  return line === null || line.points.y.length === 0 ? null : line.points;
}

const average = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** The mean of the last ten values: a single batch is noisy. */
function lastMean(metrics: MetricsStore, name: string): number | null {
  const found = points(metrics, name);
  return found === null ? null : average(found.y.slice(-LAST_STEPS));
}

function wholeMean(metrics: MetricsStore, name: string): number | null {
  const found = points(metrics, name);
  return found === null ? null : meanOf(found);
}

export const rewardOf = ({ metrics }: Facts) => lastMean(metrics, "reward/mean");

/** Seconds from the start until the mean reward of ten steps first reached `target`. */
function secondsToReward({ metrics, clock: { origin } }: Facts, target: number | null): number | null {
  const found = points(metrics, "reward/mean");
  if (found === null || target === null) return null;
  for (let end = LAST_STEPS; end <= found.y.length; end += 1) {
    if (average(found.y.slice(end - LAST_STEPS, end)) >= target - 1e-9) return found.at[end - 1]! - origin;
  }
  return null;
}

const decimal = (value: number) => number(value, 3);
const wholePercent = (value: number) => percent(value, 1);

/** The results of a comparison, most important first. */
export const HEADLINES: readonly HeadlineColumn[] = [
  { id: "reward", label: "Reward", help: "Mean reward of the last 10 train steps", better: "higher", difference: "amount", format: decimal, value: rewardOf },
  { id: "evaluation", label: "Evaluation", help: "Newest evaluation on held-out prompts: greedy completions, else sampled ones", better: "higher", difference: "points", format: wholePercent, value: ({ metrics }) => points(metrics, "eval/greedy")?.y.at(-1) ?? points(metrics, "eval/sampled")?.y.at(-1) ?? null },
  { id: "loss", label: "Loss", help: "Mean loss of the last 10 steps of a warm start, or of DPO", better: "lower", difference: "amount", format: decimal, value: ({ metrics }) => lastMean(metrics, "sft/loss") ?? lastMean(metrics, "dpo/loss") },
  { id: "to-reward", label: "Time to reward", help: "Time from the start until the mean reward of 10 steps first reached the baseline's result", better: "lower", difference: "ratio", format: clock, value: secondsToReward },
  { id: "throughput", label: "Tokens/s", help: "Loss tokens trained on each second, mean over all train steps", better: "higher", difference: "ratio", format: compact, value: ({ metrics }) => wholeMean(metrics, "perf/trained_tokens_per_second") },
  { id: "step-time", label: "Step time", help: "Wall time of a train step, mean over all of them", better: "lower", difference: "ratio", format: duration, value: ({ metrics }) => wholeMean(metrics, "time/step_seconds") },
  { id: "idle", label: "Trainer idle", help: "Share of the time in which the trainer waits, mean over all train steps", better: "lower", difference: "points", format: wholePercent, value: ({ metrics }) => wholeMean(metrics, "idle/trainer_frac") },
  { id: "staleness", label: "Staleness", help: "Policy versions between a trained trajectory and the train step, mean over all train steps", better: null, difference: "amount", format: (value) => number(value, 2), value: ({ metrics }) => wholeMean(metrics, "staleness/mean") },
  { id: "elapsed", label: "Elapsed", help: "Time since the start, without pauses", better: null, difference: "ratio", format: clock, value: ({ run, now }) => elapsedSeconds(run, now) },
  { id: "gpu-hours", label: "GPU-hours", help: "Time that the run's jobs have held each of their slots, added up", better: null, difference: "ratio", format: (value) => number(value, 2), value: ({ run, clock: { gpuHoursAt }, now }) => (run.started_at === null ? null : gpuHoursAt(now / 1000)) },
];

/** Metrics that the results need. */
export const HEADLINE_METRICS = ["reward/mean", "eval/greedy", "eval/sampled", "sft/loss", "dpo/loss", "perf/trained_tokens_per_second", "time/step_seconds", "idle/trainer_frac", "staleness/mean"];

export type Difference = { text: string; tone: "good" | "bad" | "neutral"; words: string };

/** A value against the baseline's. Null where one of them is missing, and for no difference that the format shows. */
export function differenceOf({ better, difference, format }: Pick<HeadlineColumn, "better" | "difference" | "format">, value: number | null, base: number | null): Difference | null {
  if (value === null || base === null || format(value) === format(base)) return null;
  const tone = better === null ? "neutral" : value > base === (better === "higher") ? "good" : "bad";
  const meaning = tone === "neutral" ? "than the baseline" : `than the baseline, ${tone === "good" ? "better" : "worse"}`;
  const direction = value > base ? "higher" : "lower";
  const sign = value > base ? "+" : "−";
  if (difference === "ratio" && base > 0 && value > 0) return { text: `${number(value / base, 2)}×`, tone, words: `${direction} ${meaning}` };
  if (difference === "points") return { text: `${sign}${(Math.abs(value - base) * 100).toFixed(1)} points`, tone, words: `${direction} ${meaning}` };
  return { text: `${sign}${format(Math.abs(value - base))}`, tone, words: `${direction} ${meaning}` };
}
