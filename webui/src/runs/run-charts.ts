import { compact, duration, number, percent } from "../common/format.ts";

export type ChartLine = { metric: string; label: string; color: number; dashed?: boolean; exact?: boolean };

export type ChartPlan = {
  id: string;
  title: string;
  lines: ChartLine[];
  format?: (value: number) => string;
  floor?: number;
  ceiling?: number;
  logarithmic?: boolean;
  /** the y axis has whole numbers only */
  whole?: boolean;
  /** draws the max staleness of the run */
  showsBound?: boolean;
  /** height of the plot in pixels, for charts next to taller panels */
  height?: number;
  /** shown even without points */
  always?: boolean;
};

const fraction = { format: (value: number) => percent(value, 0), floor: 0, ceiling: 1 };

/** Evaluations are sparse and a learning rate is a schedule: a moving average would show values that never existed. */
export const neverSmoothed = (metric: string) => metric.startsWith("eval/") || metric.endsWith("learning_rate");

/** The main charts, most important first. */
export const RL_CHARTS: ChartPlan[] = [
  {
    id: "reward", title: "Reward", always: true, height: 200,
    lines: [
      { metric: "reward/mean", label: "mean", color: 1 },
      { metric: "eval/greedy", label: "evaluation, greedy", color: 3, exact: true, dashed: true },
      { metric: "eval/sampled", label: "evaluation, sampled", color: 5, exact: true, dashed: true },
    ],
  },
  {
    id: "staleness", title: "Staleness of trained groups", always: true, showsBound: true, floor: 0, height: 200, format: (value) => number(value, 2),
    lines: [
      { metric: "staleness/mean", label: "mean", color: 1 },
      { metric: "staleness/p95", label: "p95", color: 5, dashed: true, exact: true },
      { metric: "staleness/max", label: "max", color: 2, exact: true },
    ],
  },
  {
    id: "policy-version", title: "Policy version", always: true, floor: 0, whole: true, format: (value) => number(value, 0),
    lines: [{ metric: "policy/version", label: "trained", color: 1, exact: true }, { metric: "engine/version", label: "engine", color: 2, dashed: true, exact: true }],
  },
  {
    id: "throughput", title: "Throughput (tokens/s)", always: true, floor: 0, format: compact,
    lines: [
      { metric: "perf/generated_tokens_per_second", label: "generated", color: 3 },
      { metric: "perf/trained_tokens_per_second", label: "trained", color: 1 },
    ],
  },
  {
    id: "idle", title: "Idle time", always: true, ...fraction,
    lines: [{ metric: "idle/trainer_frac", label: "trainer", color: 1 }, { metric: "idle/rollout_frac", label: "rollout", color: 3 }],
  },
  {
    id: "step-time", title: "Train step time", floor: 0, format: duration,
    lines: [
      { metric: "time/step_seconds", label: "step", color: 1 },
      { metric: "time/train_seconds", label: "train", color: 3 },
      { metric: "time/wait_batch_seconds", label: "wait for batch", color: 2 },
      { metric: "time/publish_seconds", label: "publish", color: 4 },
    ],
  },
  { id: "loss", title: "Policy loss", always: true, lines: [{ metric: "loss/policy", label: "loss", color: 1 }] },
  { id: "entropy", title: "Entropy", always: true, lines: [{ metric: "policy/entropy", label: "nats per token", color: 4 }] },
  { id: "grad-norm", title: "Gradient norm", always: true, floor: 0, lines: [{ metric: "optim/grad_norm", label: "before clipping", color: 5 }] },
  {
    id: "mismatch", title: "Engine mismatch", always: true, logarithmic: true, format: (value) => value.toExponential(0).replace("e+", "e"),
    lines: [
      { metric: "mismatch/logprob_abs_max", label: "max", color: 2 },
      { metric: "mismatch/logprob_abs_mean", label: "mean", color: 1 },
    ],
  },
  {
    id: "length", title: "Response length", floor: 0, format: (value) => number(value, 0),
    lines: [{ metric: "response_length/mean", label: "mean", color: 1 }, { metric: "response_length/max", label: "max", color: 6 }],
  },
  {
    id: "signal", title: "Groups without a learning signal", ...fraction,
    lines: [
      { metric: "group/zero_variance_frac", label: "equal rewards", color: 1 },
      { metric: "group/all_correct_frac", label: "all correct", color: 3, dashed: true },
      { metric: "group/none_correct_frac", label: "none correct", color: 2, dashed: true },
    ],
  },
  {
    id: "weight", title: "Importance ratio w (proximal / behavior)", format: (value) => number(value, 3),
    lines: [{ metric: "importance_ratio/abs_log_mean", label: "mean |log w|", color: 1 }, { metric: "importance_ratio/masked_frac", label: "masked", color: 2 }],
  },
  {
    id: "clip", title: "Clipped tokens", format: (value) => percent(value, 1), floor: 0,
    lines: [{ metric: "policy/clip_low_frac", label: "from below", color: 1 }, { metric: "policy/clip_high_frac", label: "from above", color: 2 }],
  },
  {
    id: "span", title: "Policy versions per trajectory", floor: 0,
    lines: [{ metric: "staleness/version_span_mean", label: "mean", color: 1 }, { metric: "staleness/version_span_max", label: "max", color: 2, exact: true }],
  },
  {
    id: "groups", title: "Groups in flight", floor: 0, format: (value) => number(value, 0),
    lines: [
      { metric: "gate/running_groups", label: "running", color: 3 },
      { metric: "buffer/groups", label: "buffered", color: 1 },
      { metric: "gate/admissible_groups", label: "gate capacity", color: 5, dashed: true },
    ],
  },
  {
    id: "sync", title: "Weight sync", floor: 0, format: duration,
    lines: [
      { metric: "weight_sync/delay_seconds", label: "publish to load", color: 1 },
      { metric: "weight_sync/paused_seconds", label: "engine paused", color: 2 },
      { metric: "weight_sync/load_seconds", label: "load", color: 3, dashed: true },
    ],
  },
  { id: "evaluation", title: "Evaluation", ...fraction, lines: [{ metric: "eval/greedy", label: "greedy", color: 1, exact: true }, { metric: "eval/sampled", label: "sampled", color: 3, exact: true }] },
];

export const SFT_CHARTS: ChartPlan[] = [
  { id: "sft-loss", title: "Loss", always: true, lines: [{ metric: "sft/loss", label: "token mean", color: 1 }] },
  { id: "sft-accuracy", title: "Greedy accuracy on the validation split", always: true, ...fraction, lines: [{ metric: "sft/greedy_accuracy", label: "accuracy", color: 3, exact: true }] },
  { id: "sft-learning-rate", title: "Learning rate", always: true, lines: [{ metric: "sft/learning_rate", label: "learning rate", color: 5, exact: true }], format: (value) => value.toExponential(1) },
];

export const DPO_CHARTS: ChartPlan[] = [
  {
    id: "dpo-loss", title: "Loss", always: true, height: 200,
    lines: [{ metric: "dpo/loss", label: "batch", color: 1 }, { metric: "dpo/validation_loss", label: "validation", color: 3, exact: true, dashed: true }],
  },
  {
    id: "dpo-accuracy", title: "Pairs ranked right", always: true, height: 200, ...fraction,
    lines: [{ metric: "dpo/accuracy", label: "batch", color: 1 }, { metric: "dpo/validation_accuracy", label: "validation", color: 3, exact: true, dashed: true }],
  },
  {
    id: "dpo-rewards", title: "Implicit rewards", always: true, format: (value) => number(value, 2),
    lines: [{ metric: "dpo/chosen_reward", label: "chosen", color: 3 }, { metric: "dpo/rejected_reward", label: "rejected", color: 2 }],
  },
  {
    id: "dpo-margin", title: "Reward margin", always: true, format: (value) => number(value, 2),
    lines: [{ metric: "dpo/margin", label: "batch", color: 1 }, { metric: "dpo/validation_margin", label: "validation", color: 3, exact: true, dashed: true }],
  },
  {
    id: "dpo-logprobs", title: "Log-probability of completions", always: true, format: (value) => number(value, 1),
    lines: [{ metric: "dpo/chosen_logprob", label: "chosen", color: 3 }, { metric: "dpo/rejected_logprob", label: "rejected", color: 2 }],
  },
  { id: "grad-norm", title: "Gradient norm", always: true, floor: 0, lines: [{ metric: "optim/grad_norm", label: "before clipping", color: 5 }] },
  { id: "dpo-learning-rate", title: "Learning rate", always: true, lines: [{ metric: "optim/learning_rate", label: "learning rate", color: 5, exact: true }], format: (value) => value.toExponential(1) },
  { id: "dpo-throughput", title: "Throughput (tokens/s)", always: true, floor: 0, format: compact, lines: [{ metric: "perf/trained_tokens_per_second", label: "trained", color: 1 }] },
  { id: "dpo-step-time", title: "Train step time", floor: 0, format: duration, lines: [{ metric: "time/step_seconds", label: "step", color: 1 }] },
];

/** The main charts of runs that sample nothing, by kind. */
export const CHARTS_BY_KIND: Record<string, ChartPlan[]> = { sft: SFT_CHARTS, dpo: DPO_CHARTS };

const COLORS = 6;

/** Reward and groups of each source of the dataset that the run samples by weight. */
export function sourceCharts(sources: string[]): ChartPlan[] {
  if (sources.length === 0) return [];
  const lines = (prefix: string): ChartLine[] =>
    sources.map((name, index) => ({ metric: prefix + name, label: name, color: (index % COLORS) + 1, dashed: index >= COLORS }));
  return [
    { id: "reward-by-source", title: "Reward by source", lines: lines("reward/by_source/") },
    { id: "groups-by-source", title: "Trained groups by source", floor: 0, lines: lines("group/by_source/"), format: (value) => number(value, 0) },
  ];
}

/** A chart for each metric that no chart above shows. */
export function otherCharts(names: string[], planned: ChartPlan[]): ChartPlan[] {
  const shown = new Set(planned.flatMap((plan) => plan.lines.map((line) => line.metric)));
  return names.filter((name) => !shown.has(name)).map((name) => ({ id: name, title: name, lines: [{ metric: name, label: "value", color: 1, exact: neverSmoothed(name) }] }));
}
