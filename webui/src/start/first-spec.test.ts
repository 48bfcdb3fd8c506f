import assert from "node:assert/strict";
import { test } from "node:test";

import { candidates, filled, openPreset, takenOver } from "./first-spec.ts";

const SUMS = { name: "sums", spec: { kind: "rl", model: { checkpoint: "" }, dataset: { version: "sums@latest", split: "train" } } };
const WARM = { name: "warm", spec: { kind: "sft", model: { base_model: "tiny" }, dataset: { version: "sums@latest" } } };
const GRPO = { name: "grpo", spec: { kind: "rl", model: { base_model: "" }, dataset: { version: "", split: "train" } } };
const PRESETS = [WARM, SUMS, GRPO];
const NOTHING = { datasets: [], models: [], checkpoints: [] };

const names = (stock: typeof NOTHING | { datasets: string[]; models: string[]; checkpoints: string[] }) => candidates(PRESETS, stock).map(({ preset }) => preset.name);

test("a preset whose dataset or weights are not there is no candidate, and a warm start comes last", () => {
  assert.deepEqual(names(NOTHING), []);
  assert.deepEqual(names({ datasets: ["maths"], models: ["tiny"], checkpoints: [] }), ["grpo"]);
  assert.deepEqual(names({ datasets: ["sums"], models: ["tiny"], checkpoints: [] }), ["grpo", "warm"]);
  assert.deepEqual(names({ datasets: ["sums"], models: ["tiny"], checkpoints: ["ckpt_1"] }), ["sums", "grpo", "warm"]);
});

test("empty names are filled with the newest of what is there", () => {
  assert.deepEqual(filled(GRPO.spec, { datasets: ["new", "old"], models: ["big", "tiny"], checkpoints: [] }), {
    kind: "rl", model: { base_model: "big" }, dataset: { version: "new@latest", split: "train" },
  });
});

test("where nothing is there the page begins with a preset that names nothing", () => {
  assert.equal(openPreset(PRESETS)?.name, "grpo");
});

test("another preset keeps the dataset and the weights that were chosen, and its own where it names them", () => {
  const old = { model: { checkpoint: "ckpt_7" }, dataset: { version: "mine@3" } };
  assert.deepEqual(takenOver(GRPO.spec, old), { kind: "rl", model: { checkpoint: "ckpt_7" }, dataset: { version: "mine@3", split: "train" } });
  assert.deepEqual(takenOver(SUMS.spec, old).model, { checkpoint: "ckpt_7" });
  assert.deepEqual(takenOver(SUMS.spec, { ...old, model: { base_model: "tiny" } }).model, { checkpoint: "" });
  assert.deepEqual(takenOver(WARM.spec, old), { kind: "sft", model: { base_model: "tiny" }, dataset: { version: "sums@latest" } });
});
