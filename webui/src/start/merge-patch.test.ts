import assert from "node:assert/strict";
import { test } from "vitest";

import { mergePatch } from "./merge-patch.ts";

const RESOLVED = { name: "x", model: { base_model: "mdl_1", checkpoint: null, lora: null }, dataset: { version: "dsv_1", weights: { a: 1, b: 2 } }, seed: 1 };

test("what is equal is left out, and what is absent goes back to its default", () => {
  assert.deepEqual(mergePatch(RESOLVED, RESOLVED), {});
  assert.deepEqual(mergePatch(RESOLVED, { name: "y", model: { checkpoint: "ckpt_1" }, dataset: { version: "dsv_1", weights: { a: 1 } } }), {
    name: "y", model: { base_model: null, checkpoint: "ckpt_1" }, dataset: { weights: { b: null } }, seed: null,
  });
});

test("a new section is written whole, without its nulls", () => {
  assert.deepEqual(mergePatch(RESOLVED, { ...RESOLVED, model: { ...RESOLVED.model, lora: { rank: 8, alpha: null } } }), { model: { lora: { rank: 8 } } });
  assert.deepEqual(mergePatch({ evaluation: null }, { evaluation: {} }), { evaluation: {} });
  assert.deepEqual(mergePatch({ options: { a: 1 } }, { options: {} }), { options: { a: null } });
});
