/** The page of the documentation that explains a metric, by the first part of its name. */
export const CONCEPTS: Record<string, string> = {
  advantage: "concepts/objective#advantages",
  buffer: "concepts/gate",
  dpo: "how-to/preferences#what-to-watch",
  engine: "concepts/gate#concurrency-of-an-engine",
  eval: "how-to/gate",
  evaluator: "how-to/gate",
  gate: "concepts/gate",
  group: "concepts/ledger#the-filter",
  idle: "concepts/gate",
  importance_ratio: "concepts/objective#decoupled-ppo",
  ledger: "concepts/ledger",
  loss: "concepts/objective",
  memory: "concepts/microbatches#memory-of-a-rank",
  mismatch: "concepts/objective#what-to-watch",
  optim: "concepts/objective#what-to-watch",
  packing: "concepts/microbatches#packing",
  policy: "concepts/objective#the-policies",
  response_length: "concepts/staleness#dropped-tokens",
  reward: "concepts/objective#reward-shaping-and-masks",
  session: "how-to/agent",
  staleness: "concepts/staleness",
  value: "concepts/objective#advantages",
  weight_sync: "concepts/interruption",
  workflow: "concepts/turns",
};

export function conceptOf(metric: string): string {
  return CONCEPTS[metric.split("/")[0]!] ?? "reference/metrics";
}
