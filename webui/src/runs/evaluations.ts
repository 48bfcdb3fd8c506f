import type { MetricsStore } from "./metrics-store.ts";

export type EvaluationRow = { version: number; greedy: number | null; sampled: number | null; meanTokens: number | null };

/** The evaluations that a run reported so far, oldest first: its summary has them only at the end. */
export function evaluationsOf(metrics: Pick<MetricsStore, "lines">): EvaluationRow[] {
  const rows = new Map<number, EvaluationRow>();
  const read = (name: string, field: "greedy" | "sampled" | "meanTokens") => {
    for (const { points } of metrics.lines(name)) {
      points.x.forEach((version, index) => {
        const row = rows.get(version) ?? { version, greedy: null, sampled: null, meanTokens: null };
        rows.set(version, { ...row, [field]: points.y[index]! });
      });
    }
  };
  read("eval/greedy", "greedy");
  read("eval/sampled", "sampled");
  read("eval/mean_tokens", "meanTokens");
  return [...rows.values()].sort((one, other) => one.version - other.version);
}
