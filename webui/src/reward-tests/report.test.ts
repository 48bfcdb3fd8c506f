import assert from "node:assert/strict";
import { test } from "vitest";

import { examples, figures, findings, probeResults } from "./report.ts";

const REPORT = {
  rows: 4, calls: 40, result: "red", zero_variance_frac: 0.5,
  determinism: { checked: 20, differing: 1, examples: [{ row: 2, source: "model", completion: "9", scores: [1, null] }] },
  latency_seconds: { p50: 0.002, p95: 0.01, max: 0.5 },
  exceptions: { count: 2, share: 0.05, examples: [{ row: 1, source: "empty", completion: "", error: "ValueError: no number" }] },
  range: { min: 0, max: 1, mean: 0.25, distinct: 3, scored: 38, model_mean: 0.4 },
  probes: {
    echo: { tried: 4, scored: 4, mean: 1, max: 1, success_frac: 1, example: { row: 0, source: "echo", completion: "What is 2+2?" } },
    empty: { tried: 4, scored: 2, mean: 0, max: 0, success_frac: 0, example: null },
    leaked_answer: { tried: 4, scored: 4, mean: 1, max: 1, success_frac: 1, example: null },
  },
  reasons: [
    { level: "red", code: "exceptions", message: "2 of 40 calls returned no score" },
    { level: "red", code: "probe_echo", message: "the probe 'echo' succeeds on 100% of the rows" },
    { level: "note", code: "unknown_code", message: "new" },
  ],
};

test("every finding has its advice, and an unknown one is shown without", () => {
  const [exceptions, echo, unknown] = findings(REPORT);
  assert.match(exceptions!.advice, /drops its whole group/);
  assert.match(echo!.advice, /policy finds this/);
  assert.deepEqual(unknown, { level: "note", code: "unknown_code", message: "new", advice: "" });
  assert.deepEqual(findings(null), []);
});

test("a probe with a finding is gamed, and the bare answer is a control", () => {
  const results = probeResults(REPORT);
  assert.deepEqual(results.map(({ name, outcome }) => [name, outcome]), [["empty", "safe"], ["echo", "gamed"], ["leaked_answer", "control"]]);
  assert.match(results[1]!.says, /copying the question/);
  assert.equal(results[1]!.example, "What is 2+2?");
});

test("figures have a dash where nothing was measured", () => {
  const values = (report: typeof REPORT | Record<string, unknown>) => Object.fromEntries(figures(report).map(({ label, value }) => [label, value]));
  assert.deepEqual(values(REPORT), {
    Exceptions: "2", Determinism: "1 differ", "Latency, p95": "10 ms", Range: "0 to 1", "Mean of samples": "0.400", "Zero-variance groups": "50 %",
  });
  assert.deepEqual(values({ range: null, latency_seconds: null, zero_variance_frac: null }), {
    Exceptions: "–", Determinism: "–", "Latency, p95": "–", Range: "–", "Mean of samples": "–", "Zero-variance groups": "–",
  });
});

test("examples say what went wrong", () => {
  assert.deepEqual(examples(REPORT, "exceptions"), [{ row: 1, source: "empty", completion: "", detail: "ValueError: no number" }]);
  assert.equal(examples(REPORT, "determinism")[0]!.detail, "scored 1, then nothing");
});
