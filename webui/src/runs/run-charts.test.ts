import assert from "node:assert/strict";
import { test } from "vitest";

import { otherCharts, RL_CHARTS, SFT_CHARTS, sourceCharts } from "./run-charts.ts";

test("evaluations and learning rates are never smoothed", () => {
  const lines = [...RL_CHARTS, ...SFT_CHARTS].flatMap((plan) => plan.lines);
  const sparse = lines.filter(({ metric }) => metric.startsWith("eval/") || metric === "sft/greedy_accuracy" || metric === "sft/learning_rate");
  assert.equal(sparse.length, 6);
  assert.deepEqual(sparse.filter((line) => line.exact !== true), []);
});

test("a metric without a planned chart is smoothed unless it is an evaluation or a learning rate", () => {
  const charts = otherCharts(["reward/mean", "eval/pass_at_4", "optim/learning_rate", "reward/format"], RL_CHARTS);
  assert.deepEqual(charts.map(({ id, lines }) => [id, lines[0]?.exact]), [["eval/pass_at_4", true], ["optim/learning_rate", true], ["reward/format", false]]);
});

test("a run that weights the sources of its dataset has a line for each that it samples", () => {
  assert.deepEqual(sourceCharts([]), []);
  const [reward, groups] = sourceCharts(["openai/gsm8k", "code"]);
  assert.deepEqual(reward?.lines.map(({ metric, label }) => [metric, label]), [["reward/by_source/openai/gsm8k", "openai/gsm8k"], ["reward/by_source/code", "code"]]);
  assert.deepEqual(groups?.lines.map(({ metric }) => metric), ["group/by_source/openai/gsm8k", "group/by_source/code"]);
});
