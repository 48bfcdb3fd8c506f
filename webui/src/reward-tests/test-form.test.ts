import assert from "node:assert/strict";
import { test } from "vitest";

import { PROBE_NAMES } from "./report.ts";
import { completeNote, parseStored, planText, testRequest, type Fields } from "./test-form.ts";

const FIELDS: Fields = {
  reward: "close@2", options: '{"half_at": 5}', dataset: "sums@1", split: "train", weights: "checkpoint:ckpt_1:2", rows: 8, completions: "sample", samples: 2,
  maxNewTokens: 64, stored: "", probes: PROBE_NAMES, successScore: "",
};

test("a request names a function or a built-in reward, and weights of one source", () => {
  const sent = testRequest(FIELDS);
  assert.ok("body" in sent);
  assert.deepEqual(sent.body.reward, { function: "close@2", options: { half_at: 5 } });
  assert.deepEqual([sent.body.checkpoint, sent.body.model], ["ckpt_1:2", undefined]);
  assert.deepEqual(sent.body.reward_test, { rows: 8, samples: 2, probes: PROBE_NAMES, max_new_tokens: 64 });
  const builtIn = testRequest({ ...FIELDS, reward: "math", options: "", weights: "model:mdl_1", completions: "probes" });
  assert.ok("body" in builtIn);
  assert.deepEqual(builtIn.body.reward, { name: "math", options: {} });
  assert.equal(builtIn.body.model, "mdl_1");
  assert.equal(builtIn.body.reward_test?.samples, 0);
});

test("each missing or invalid field has its problem", () => {
  const sent = testRequest({ ...FIELDS, reward: "", dataset: "", weights: "", rows: "", samples: 0, options: "[1]" });
  assert.ok("problems" in sent);
  assert.deepEqual(Object.keys(sent.problems).sort(), ["dataset", "options", "reward", "rows", "samples", "weights"]);
});

test("stored completions are JSON lines, and a problem names its line", () => {
  assert.deepEqual(parseStored('{"row": 3, "completion": "7"}\n\n'), [{ row: 3, completion: "7" }]);
  assert.equal(parseStored('{"row": 3, "completion": "7"}\noops'), "Line 2 is not a JSON object.");
  assert.equal(parseStored('{"row": 3}'), "Line 1 has no completion.");
  assert.match(String(parseStored('{"completion": "7"}')), /row, or a prompt and an answer/);
  assert.match(String(parseStored("\n")), /at least one/);
});

test("the plan counts completions, and rows that the split does not have are not counted", () => {
  assert.match(planText(FIELDS, 100), /^Scores 64 completions twice each: 8 rows × 6 probes and 16 samples\. It takes one free slot/);
  assert.match(planText({ ...FIELDS, completions: "probes" }, 4), /^Scores 24 completions .* no slot/);
});

test("a test with fewer rows or probes says that it is not complete", () => {
  assert.match(completeNote(FIELDS, 100), /32 rows/);
  assert.equal(completeNote(FIELDS, 8), "");
  assert.match(completeNote({ ...FIELDS, rows: 32, probes: ["empty"] }, 100), /needs all probes\./);
});
