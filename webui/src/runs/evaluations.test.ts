import assert from "node:assert/strict";
import { test } from "vitest";

import { evaluationsOf } from "./evaluations.ts";
import { MetricsStore } from "./metrics-store.ts";

test("evaluations during a run are one row per version", () => {
  const metrics = new MetricsStore((then) => then());
  metrics.add({ axis: "step", x: 20, attempt: 1, values: { "eval/greedy": 0.5, "eval/sampled": 0.4 } }, 1_700_000_000);
  metrics.add({ axis: "step", x: 0, attempt: 1, values: { "eval/greedy": 0.1 } }, 1_700_000_000);
  assert.deepEqual(evaluationsOf(metrics), [
    { version: 0, greedy: 0.1, sampled: null, meanTokens: null },
    { version: 20, greedy: 0.5, sampled: 0.4, meanTokens: null },
  ]);
});
