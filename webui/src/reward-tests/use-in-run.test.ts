import assert from "node:assert/strict";
import { test } from "vitest";

import { rewardLines, startLink } from "./use-in-run.ts";

test("the section names the function or the built-in reward with its options", () => {
  assert.equal(rewardLines({ name: "exact_match", function: "close@2", options: { half_at: 5 } }), 'reward:\n  function: close@2\n  options: {"half_at":5}\n');
  assert.equal(rewardLines({ name: "math", function: null, options: {} }), "reward:\n  name: math\n");
});

test("the start page gets the reward, the dataset and the weights of the test", () => {
  const dataset = { id: "dsv_1", ref: "sums@1" };
  const reward = { name: "exact_match", function: "close@2", options: { half_at: 5 } };
  const params = (model: unknown) => Object.fromEntries(new URLSearchParams(startLink({ dataset }, { reward, model: model as never }).split("?")[1]));
  assert.deepEqual(params({ checkpoint: "ckpt_1", base_model: null }), { dataset: "sums@1", checkpoint: "ckpt_1", reward: '{"function":"close@2","options":{"half_at":5}}' });
  assert.deepEqual(params({ checkpoint: null, base_model: "tiny@1" })["model"], "tiny@1");
});
