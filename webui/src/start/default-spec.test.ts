import assert from "node:assert/strict";
import { test } from "vitest";

import { candidates, fillNames, fallbackPreset, applyPreset, needsCheckpoint, type Available } from "./default-spec.ts";

const SUMS = { name: "sums", spec: { kind: "rl", model: { checkpoint: "" }, dataset: { version: "sums@latest", split: "train" } } };
const WARM = { name: "warm", spec: { kind: "sft", model: { base_model: "tiny" }, dataset: { version: "sums@latest" } } };
const GRPO = { name: "grpo", spec: { kind: "rl", model: { base_model: "" }, dataset: { version: "", split: "train" } } };
const PRESETS = [WARM, SUMS, GRPO];
const EMPTY: Available = { datasets: [], models: [], hasCheckpoint: false };

const names = (available: Available) => candidates(PRESETS, available).map(({ preset }) => preset.name);

test("a preset with a missing dataset or missing weights is not a candidate, and warm starts come last", () => {
  assert.deepEqual(names(EMPTY), []);
  assert.deepEqual(names({ datasets: ["maths"], models: ["tiny"], hasCheckpoint: false }), ["grpo"]);
  assert.deepEqual(names({ datasets: ["sums"], models: ["tiny"], hasCheckpoint: false }), ["grpo", "warm"]);
  assert.deepEqual(names({ datasets: ["sums"], models: ["tiny"], hasCheckpoint: true }), ["sums", "grpo", "warm"]);
});

test("empty names are filled with the newest available objects", () => {
  assert.deepEqual(fillNames(GRPO.spec, { datasets: ["new", "old"], models: ["big", "tiny"], hasCheckpoint: false }), {
    kind: "rl", model: { base_model: "big" }, dataset: { version: "new@latest", split: "train" },
  });
});

test("a checkpoint is never chosen for the user", () => {
  const spec = fillNames(SUMS.spec, { datasets: ["sums"], models: ["tiny"], hasCheckpoint: true });
  assert.deepEqual(spec?.["model"], { checkpoint: "" });
  assert.equal(needsCheckpoint(spec!), true);
  assert.equal(needsCheckpoint({ model: { checkpoint: "ckpt_1" } }) || needsCheckpoint(GRPO.spec), false);
});

test("an empty project gets a preset without names", () => {
  assert.equal(fallbackPreset(PRESETS)?.name, "grpo");
});

test("a new preset keeps the chosen dataset and weights unless it names its own", () => {
  const old = { model: { checkpoint: "ckpt_7" }, dataset: { version: "mine@3" } };
  assert.deepEqual(applyPreset(GRPO.spec, old), { kind: "rl", model: { checkpoint: "ckpt_7" }, dataset: { version: "mine@3", split: "train" } });
  assert.deepEqual(applyPreset(SUMS.spec, old).model, { checkpoint: "ckpt_7" });
  assert.deepEqual(applyPreset(SUMS.spec, { ...old, model: { base_model: "tiny" } }).model, { checkpoint: "" });
  assert.deepEqual(applyPreset(WARM.spec, old), { kind: "sft", model: { base_model: "tiny" }, dataset: { version: "sums@latest" } });
});
