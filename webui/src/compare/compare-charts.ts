import { DPO_CHARTS, neverSmoothed, RL_CHARTS, SFT_CHARTS, type ChartPlan } from "../runs/run-charts.ts";

/** A chart of one metric with a line for each run. */
export type ComparePlan = Pick<ChartPlan, "id" | "title" | "format" | "floor" | "ceiling" | "logarithmic" | "whole"> & { exact: boolean };

/** The metrics that are shown without a choice, most important first. */
export const HEADLINE_CHARTS = [
  "reward/mean", "eval/greedy", "eval/sampled", "staleness/mean", "perf/trained_tokens_per_second", "idle/trainer_frac", "time/step_seconds", "policy/entropy",
  "response_length/mean", "sft/loss", "sft/greedy_accuracy", "dpo/loss", "dpo/validation_accuracy",
];

/** A metric as the run page draws it: with its format and range, and its title where the chart has others like it. */
export function comparePlan(metric: string): ComparePlan {
  const plan = planOf(metric);
  if (plan === undefined) return { id: metric, title: metric, exact: neverSmoothed(metric) };
  const { title, lines, format, floor, ceiling, logarithmic, whole } = plan;
  const line = lines.find((one) => one.metric === metric)!;
  const isMain = line === lines[0] && lines.filter((one) => areaOf(one.metric) === areaOf(metric)).length === 1;
  return { id: metric, title: isMain ? title : `${title}: ${line.label}`, format, floor, ceiling, logarithmic, whole, exact: line.exact ?? false };
}

/** The chart that the metric belongs to: one of its own area, else one that it leads. The reward's chart shows evaluations too. */
function planOf(metric: string): ChartPlan | undefined {
  const plans = [...RL_CHARTS, ...SFT_CHARTS, ...DPO_CHARTS].filter(({ lines }) => lines.some((one) => one.metric === metric));
  return plans.find(({ lines }) => lines.every((one) => areaOf(one.metric) === areaOf(metric))) ?? plans.find(({ lines }) => lines[0]!.metric === metric) ?? plans[0];
}

function areaOf(metric: string): string {
  return metric.split("/")[0]!;
}

export type Names = ReadonlyMap<string, readonly string[]>; // by run: the metrics that it has reported

/** How many of the runs have reported each metric, by name. */
export function sharedBy(names: Names): Map<string, number> {
  const counts = new Map<string, number>();
  for (const own of names.values()) for (const name of own) counts.set(name, (counts.get(name) ?? 0) + 1);
  return new Map([...counts].sort(([a], [b]) => a.localeCompare(b)));
}

/** The metrics of the page: the chosen ones in their order, or else the headline ones that some run has reported. */
export function shownMetrics(chosen: readonly string[], names: Names): string[] {
  if (chosen.length > 0) return [...chosen];
  const counts = sharedBy(names);
  return HEADLINE_CHARTS.filter((name) => counts.has(name));
}

/** The metrics that at least two runs have reported and the page does not show yet; of one run all of its own. */
export function moreShared(shown: readonly string[], names: Names): string[] {
  const least = Math.min(2, names.size);
  return [...sharedBy(names)].filter(([name, count]) => count >= least && !shown.includes(name)).map(([name]) => name);
}
