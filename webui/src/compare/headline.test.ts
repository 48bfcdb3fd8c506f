import assert from "node:assert/strict";
import { test } from "vitest";

import type { Run } from "../api/schema.d.ts";
import { MetricsStore } from "../runs/metrics-store.ts";
import { comparePlan, moreShared, shownMetrics } from "./compare-charts.ts";
import { differenceOf, HEADLINES, type Facts } from "./headline.ts";

const column = (id: string) => HEADLINES.find((one) => one.id === id)!;

/** A run whose step takes ten seconds, from second 1000 on. */
function facts(rewards: number[], more: Record<string, number[]> = {}): Facts {
  const metrics = new MetricsStore(() => {});
  const entries = Object.entries({ "reward/mean": rewards, ...more });
  metrics.replace(entries.map(([name, value]) => ({ name, unit: "", axis: "step", source: "trainer", attempt: 1, x: value.map((_, index) => index + 1), value, at: value.map((_, index) => 1_010 + index * 10) })));
  return { run: { started_at: null } as Run, metrics, clock: { origin: 1_000, gpuHoursAt: () => 0 }, now: 0 };
}

test("the reward is the mean of the last ten steps", () => {
  assert.equal(column("reward").value(facts([...Array(20).fill(0), ...Array(10).fill(0.5)]), null), 0.5);
  assert.equal(column("reward").value(facts([]), null), null);
});

test("the time to the baseline's reward is that of the step which completed ten good steps", () => {
  const fast = facts([...Array(5).fill(0), ...Array(15).fill(1)]);
  assert.equal(column("to-reward").value(fast, 1), 150);
  assert.equal(column("to-reward").value(fast, 1.5), null);
  assert.equal(column("to-reward").value(fast, null), null);
});

test("an evaluation is the newest of the greedy completions, else of the sampled ones", () => {
  const { value } = column("evaluation");
  assert.equal(value(facts([], { "eval/greedy": [0.1, 0.3], "eval/sampled": [0.2] }), null), 0.3);
  assert.equal(value(facts([], { "eval/sampled": [0.2] }), null), 0.2);
  assert.equal(value(facts([]), null), null);
});

test("a difference reads as an amount, points or a ratio, and says what is better", () => {
  assert.deepEqual(differenceOf(column("reward"), 0.75, 0.5), { text: "+0.250", tone: "good", words: "higher than the baseline, better" });
  assert.equal(differenceOf(column("evaluation"), 0.5, 0.531)?.text, "−3.1 points");
  assert.deepEqual(differenceOf(column("step-time"), 30, 60), { text: "0.50×", tone: "good", words: "lower than the baseline, better" });
  assert.equal(differenceOf(column("staleness"), 3, 1)?.tone, "neutral");
  assert.equal(differenceOf(column("reward"), null, 1), null);
  assert.equal(differenceOf(column("reward"), 0.50001, 0.5), null); // no difference that the format shows
});

test("the charts are the headline metrics that some run has, unless others are chosen", () => {
  const names = new Map([["run_a", ["reward/mean", "loss/policy", "a/own"]], ["run_b", ["loss/policy", "staleness/mean"]]]);
  assert.deepEqual(shownMetrics([], names), ["reward/mean", "staleness/mean"]);
  assert.deepEqual(shownMetrics(["loss/policy"], names), ["loss/policy"]);
  assert.deepEqual(moreShared(["reward/mean", "staleness/mean"], names), ["loss/policy"]);
  assert.deepEqual(moreShared(["reward/mean"], new Map([["run_a", ["reward/mean", "a/own"]]])), ["a/own"]);
});

test("a metric looks as on the run page, and an evaluation is never smoothed", () => {
  const titles = ["reward/mean", "eval/greedy", "policy/version", "engine/version", "policy/entropy"].map((metric) => comparePlan(metric).title);
  assert.deepEqual(titles, ["Reward", "Evaluation: greedy", "Policy version", "Policy version: engine", "Entropy"]);
  assert.equal(comparePlan("idle/trainer_frac").title, "Idle time: trainer");
  assert.equal(comparePlan("idle/trainer_frac").ceiling, 1);
  assert.deepEqual(comparePlan("eval/by_source/code"), { id: "eval/by_source/code", title: "eval/by_source/code", exact: true });
});
