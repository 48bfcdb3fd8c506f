import { compact, duration, number, percent } from "../common/format.ts";

export type ChartLine = { metric: string; label: string; colour: number; dashed?: boolean; exact?: boolean };

export type ChartPlan = {
  id: string;
  title: string;
  lines: ChartLine[];
  format?: (value: number) => string;
  floor?: number;
  ceiling?: number;
  logarithmic?: boolean;
  /** its axis counts in whole numbers */
  whole?: boolean;
  /** the run's max staleness is drawn into it */
  showsBound?: boolean;
  /** pixels of the drawing, where it stands beside something taller */
  height?: number;
  /** shown even while it has no point */
  always?: boolean;
};

const share = { format: (value: number) => percent(value, 0), floor: 0, ceiling: 1 };

/** What a researcher looks at first, in this order. */
export const RL_CHARTS: ChartPlan[] = [
  {
    id: "reward", title: "Reward", always: true, height: 200,
    lines: [{ metric: "reward/mean", label: "mean", colour: 1 }],
  },
  {
    id: "staleness", title: "Staleness at training", always: true, showsBound: true, floor: 0, height: 200, format: (value) => number(value, 2),
    lines: [
      { metric: "staleness/mean", label: "mean", colour: 1 },
      { metric: "staleness/p95", label: "p95", colour: 5, dashed: true, exact: true },
      { metric: "staleness/max", label: "max", colour: 2, exact: true },
    ],
  },
  {
    id: "policy-version", title: "Policy version", always: true, floor: 0, whole: true, format: (value) => number(value, 0),
    lines: [{ metric: "policy/version", label: "trained", colour: 1, exact: true }, { metric: "engine/version", label: "engine", colour: 2, dashed: true, exact: true }],
  },
  {
    id: "throughput", title: "Throughput, tokens a second", always: true, floor: 0, format: compact,
    lines: [
      { metric: "perf/generated_tokens_per_second", label: "generated", colour: 3 },
      { metric: "perf/trained_tokens_per_second", label: "trained", colour: 1 },
    ],
  },
  {
    id: "idle", title: "Idle share", always: true, ...share,
    lines: [{ metric: "idle/trainer_frac", label: "trainer", colour: 1 }, { metric: "idle/rollout_frac", label: "rollout", colour: 3 }],
  },
  {
    id: "step-time", title: "Time of a train step", floor: 0, format: duration,
    lines: [
      { metric: "time/step_seconds", label: "step", colour: 1 },
      { metric: "time/train_seconds", label: "train", colour: 3 },
      { metric: "time/wait_batch_seconds", label: "wait", colour: 2 },
      { metric: "time/publish_seconds", label: "publish", colour: 4 },
    ],
  },
  { id: "loss", title: "Policy loss", always: true, lines: [{ metric: "loss/policy", label: "loss", colour: 1 }] },
  { id: "entropy", title: "Entropy", always: true, lines: [{ metric: "policy/entropy", label: "nats a token", colour: 4 }] },
  { id: "grad-norm", title: "Gradient norm", always: true, floor: 0, lines: [{ metric: "optim/grad_norm", label: "before clipping", colour: 5 }] },
  {
    id: "mismatch", title: "Engine mismatch", always: true, logarithmic: true, format: (value) => value.toExponential(0).replace("e+", "e"),
    lines: [
      { metric: "mismatch/logprob_abs_max", label: "max", colour: 2 },
      { metric: "mismatch/logprob_abs_mean", label: "mean", colour: 1 },
    ],
  },
  {
    id: "length", title: "Response length", floor: 0, format: (value) => number(value, 0),
    lines: [{ metric: "response_length/mean", label: "mean", colour: 1 }, { metric: "response_length/max", label: "max", colour: 6 }],
  },
  {
    id: "signal", title: "Groups without a gradient", ...share,
    lines: [
      { metric: "group/zero_variance_frac", label: "equal rewards", colour: 1 },
      { metric: "group/all_correct_frac", label: "all solved", colour: 3, dashed: true },
      { metric: "group/none_correct_frac", label: "none solved", colour: 2, dashed: true },
    ],
  },
  {
    id: "weight", title: "Proximal over behaviour weight w", format: (value) => number(value, 3),
    lines: [{ metric: "importance_ratio/abs_log_mean", label: "mean |log w|", colour: 1 }, { metric: "importance_ratio/masked_frac", label: "masked share", colour: 2 }],
  },
  {
    id: "clip", title: "Clipped tokens", format: (value) => percent(value, 1), floor: 0,
    lines: [{ metric: "policy/clip_low_frac", label: "from below", colour: 1 }, { metric: "policy/clip_high_frac", label: "from above", colour: 2 }],
  },
  {
    id: "span", title: "Versions inside a trajectory", floor: 0,
    lines: [{ metric: "staleness/version_span_mean", label: "mean", colour: 1 }, { metric: "staleness/version_span_max", label: "max", colour: 2, exact: true }],
  },
  {
    id: "groups", title: "Groups in hand", floor: 0, format: (value) => number(value, 0),
    lines: [
      { metric: "gate/running_groups", label: "running", colour: 3 },
      { metric: "buffer/groups", label: "buffered", colour: 1 },
      { metric: "gate/admissible_groups", label: "free places", colour: 5, dashed: true },
    ],
  },
  {
    id: "sync", title: "Weight sync", floor: 0, format: duration,
    lines: [
      { metric: "weight_sync/delay_seconds", label: "announced to loaded", colour: 1 },
      { metric: "weight_sync/paused_seconds", label: "engine paused", colour: 2 },
      { metric: "weight_sync/load_seconds", label: "load", colour: 3, dashed: true },
    ],
  },
  { id: "evaluation", title: "Evaluation", ...share, lines: [{ metric: "eval/greedy", label: "greedy", colour: 1 }, { metric: "eval/sampled", label: "sampled", colour: 3 }] },
];

export const SFT_CHARTS: ChartPlan[] = [
  { id: "sft-loss", title: "Loss", always: true, lines: [{ metric: "sft/loss", label: "token mean", colour: 1 }] },
  { id: "sft-accuracy", title: "Greedy accuracy on the validation split", always: true, ...share, lines: [{ metric: "sft/greedy_accuracy", label: "accuracy", colour: 3 }] },
  { id: "sft-learning-rate", title: "Learning rate", always: true, lines: [{ metric: "sft/learning_rate", label: "learning rate", colour: 5 }], format: (value) => value.toExponential(1) },
];

/** Every metric that no chart above names gets a chart of its own, so that nothing measured is out of sight. */
export function otherCharts(names: string[], planned: ChartPlan[]): ChartPlan[] {
  const taken = new Set(planned.flatMap((plan) => plan.lines.map((line) => line.metric)));
  return names.filter((name) => !taken.has(name)).map((name) => ({ id: name, title: name, lines: [{ metric: name, label: "value", colour: 1 }] }));
}
