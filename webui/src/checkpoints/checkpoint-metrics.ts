/** Metrics of a checkpoint in the order of what decides about it: evaluations, then the reward, then the others by name. */

type Metrics = Record<string, number | null>;

const FIRST = ["eval/accuracy", "eval/greedy", "eval/sampled", "reward_mean"];

export function orderedMetrics(metrics: Metrics): [string, number][] {
  const known = Object.entries(metrics).filter((entry): entry is [string, number] => entry[1] !== null);
  const rank = (name: string) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length + (name.startsWith("eval/") ? 0 : 1));
  return known.sort(([one], [other]) => rank(one) - rank(other) || one.localeCompare(other));
}

const LABELS: Record<string, string> = { reward_mean: "mean reward", "eval/accuracy": "eval accuracy" };

export function metricLabel(name: string): string {
  return LABELS[name] ?? name;
}
