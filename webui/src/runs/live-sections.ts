import type { ChartPlan } from "./run-charts.ts";

/** The two charts that say how the run goes. They are above all sections. */
const OUTCOME = ["reward", "staleness", "sft-loss", "sft-accuracy", "dpo-loss", "dpo-accuracy"];

const SECTIONS = [
  { id: "speed", title: "Speed and idle time", charts: ["throughput", "idle", "policy-version", "step-time", "sync", "groups", "dpo-throughput", "dpo-step-time"] },
  { id: "optimization", title: "Optimization", charts: ["loss", "entropy", "grad-norm", "weight", "clip", "mismatch", "sft-learning-rate", "dpo-rewards", "dpo-margin", "dpo-logprobs", "dpo-learning-rate"] },
  { id: "data", title: "Completions and groups", charts: ["length", "signal", "span", "evaluation", "reward-by-source", "groups-by-source"] },
];

export type Section = { id: string; title: string; plans: ChartPlan[] };

export function outcomeOf(planned: ChartPlan[]): ChartPlan[] {
  return planned.filter(({ id }) => OUTCOME.includes(id));
}

/** The other charts by topic, and last those of metrics without a place of their own. */
export function sectionsOf(planned: ChartPlan[], others: ChartPlan[]): Section[] {
  const rest = planned.filter(({ id }) => !OUTCOME.includes(id));
  const sections = SECTIONS.map(({ id, title, charts }) => ({ id, title, plans: rest.filter((plan) => charts.includes(plan.id)) }));
  const placed = new Set(sections.flatMap(({ plans }) => plans.map(({ id }) => id)));
  const unplaced = rest.filter(({ id }) => !placed.has(id));
  return [...sections, { id: "others", title: "All other metrics", plans: [...unplaced, ...others] }].filter(({ plans }) => plans.length > 0);
}

/** Charts whose title, lines or metrics contain all words of the search. */
export function matchingCharts(plans: ChartPlan[], search: string): ChartPlan[] {
  const words = search.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return [];
  return plans.filter((plan) => {
    const text = [plan.title, ...plan.lines.flatMap(({ metric, label }) => [metric, label])].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
