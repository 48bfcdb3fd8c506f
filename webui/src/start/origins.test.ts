import assert from "node:assert/strict";
import { test } from "vitest";

import { defaultPreset, needsCheckpoint, originOf, originOfSpec, presetsOf, specFor, type Available } from "./origins.ts";

const WARM = { name: "warm", spec: { kind: "sft", model: { base_model: "tiny" }, dataset: { version: "sums@latest" } } };
const SUMS = { name: "sums", spec: { kind: "rl", model: { checkpoint: "" }, dataset: { version: "sums@latest", split: "train" } } };
const DAPO = { name: "dapo", spec: { kind: "rl", model: { base_model: "" }, dataset: { version: "", split: "train" } } };
const GRPO = { name: "grpo", spec: { kind: "rl", model: { base_model: "" }, dataset: { version: "", split: "train" } } };
const LORA = { name: "lora", spec: { kind: "rl", model: { base_model: "", lora: { rank: 32 } }, dataset: { version: "" } } };
const PRESETS = [WARM, SUMS, DAPO, GRPO, LORA];
const EMPTY: Available = { datasets: [], models: [], hasCheckpoint: false };
const FULL: Available = { datasets: ["sums", "mine", "old"], models: ["big", "tiny"], hasCheckpoint: true };

const names = (found: { name: string }[]) => found.map(({ name }) => name);

test("presets that name a dataset are the demo, and the standard algorithm leads the others", () => {
  assert.deepEqual(names(presetsOf("demo", PRESETS)), ["warm", "sums"]);
  assert.deepEqual(names(presetsOf("data", PRESETS)), ["grpo", "dapo", "lora"]);
  assert.deepEqual(names(presetsOf("checkpoint", PRESETS)), ["grpo", "dapo", "lora"]);
});

test("a project begins with its own data, without any with the demo, and without a demo with data", () => {
  assert.equal(originOf(PRESETS, FULL), "data");
  assert.equal(originOf(PRESETS, { ...FULL, datasets: ["sums"] }), "demo");
  assert.equal(originOf(PRESETS, EMPTY), "demo");
  assert.equal(originOf([GRPO], EMPTY), "data");
});

test("the demo is a warm start until there is a checkpoint to go on with", () => {
  assert.equal(defaultPreset("demo", PRESETS, EMPTY), WARM);
  assert.equal(defaultPreset("demo", PRESETS, FULL), SUMS);
  assert.equal(defaultPreset("data", PRESETS, FULL), GRPO);
  assert.equal(defaultPreset("data", [], FULL), undefined);
});

test("empty names become the newest objects, and the sample is not the user's data while there is other data", () => {
  assert.deepEqual(specFor("data", GRPO, PRESETS, FULL), { kind: "rl", model: { base_model: "big" }, dataset: { version: "mine@latest", split: "train" } });
  assert.deepEqual(specFor("data", GRPO, PRESETS, EMPTY).dataset, { version: "", split: "train" });
  assert.deepEqual(specFor("demo", WARM, PRESETS, FULL).model, { base_model: "tiny" });
  assert.deepEqual(specFor("demo", WARM, PRESETS, { ...FULL, models: ["other"] }).model, { base_model: "other" });
  assert.deepEqual(specFor("demo", WARM, PRESETS, EMPTY).model, { base_model: "tiny" });
});

test("another algorithm keeps the chosen dataset and weights and brings its other keys of the model", () => {
  const old = { model: { base_model: "tiny" }, dataset: { version: "old@3" } };
  assert.deepEqual(specFor("data", LORA, PRESETS, FULL, old), { kind: "rl", model: { base_model: "tiny", lora: { rank: 32 } }, dataset: { version: "old@3" } });
  assert.deepEqual(specFor("demo", SUMS, PRESETS, FULL, old).dataset, { version: "sums@latest", split: "train" });
});

test("a checkpoint is never chosen for the user, and a chosen one stays", () => {
  const asked = specFor("checkpoint", LORA, PRESETS, FULL, { model: { base_model: "tiny" } });
  assert.deepEqual(asked.model, { checkpoint: "", lora: { rank: 32 } });
  assert.ok(needsCheckpoint(asked) && !needsCheckpoint(GRPO.spec));
  assert.deepEqual(specFor("checkpoint", GRPO, PRESETS, FULL, { model: { checkpoint: "ckpt_7" } }).model, { checkpoint: "ckpt_7" });
  assert.deepEqual(specFor("data", GRPO, PRESETS, FULL, { model: { checkpoint: "ckpt_7" } }).model, { base_model: "big" });
});

test("a spec shows its origin", () => {
  assert.equal(originOfSpec(PRESETS, { model: { checkpoint: "ckpt_7" }, dataset: { version: "mine@1" } }), "checkpoint");
  assert.equal(originOfSpec(PRESETS, { model: { base_model: "x" }, dataset: { version: "sums@2" } }), "demo");
  assert.equal(originOfSpec(PRESETS, { model: { base_model: "x" }, dataset: { version: "mine@2" } }), "data");
});
