import assert from "node:assert/strict";
import { test } from "vitest";

import { inOrder, sameValue, withoutDefaults } from "./spec-order.ts";

test("keys come in the order of the reference, unknown ones last, and lists and options stay", () => {
  const ordered = inOrder({ seed: 1, extra: 2, dataset: { split: "train", version: "a@1" }, name: "x", kind: "rl", reward: { options: { z: 1, b: 2 }, name: "math" } });
  assert.deepEqual(Object.keys(ordered), ["kind", "name", "dataset", "reward", "seed", "extra"]);
  assert.deepEqual(Object.keys(ordered["dataset"] as object), ["version", "split"]);
  assert.deepEqual(Object.keys((ordered["reward"] as { options: object }).options), ["z", "b"]);
});

test("what is at its default is left out, and the kind stays", () => {
  assert.deepEqual(
    withoutDefaults({ kind: "rl", name: "x", seed: 1, notes: "", secrets: [], staleness: { max: 8, on_straggler: null }, budget: { max_attempts: 3, max_wall_seconds: null } }),
    { kind: "rl", name: "x", staleness: { max: 8 } },
  );
});

test("an optional section at its defaults is not the same as none", () => {
  assert.deepEqual(withoutDefaults({ kind: "rl", evaluation: { prompts: 7 } }), { kind: "rl", evaluation: { prompts: 7 } });
  assert.deepEqual(withoutDefaults({ kind: "rl", evaluation: { every_steps: null, dataset: null } }), { kind: "rl", evaluation: {} });
  assert.deepEqual(withoutDefaults({ kind: "rl", evaluation: null }), { kind: "rl" });
});

test("a null where the default is a value stays", () => {
  assert.deepEqual(withoutDefaults({ kind: "rl", staleness: { max: null } }), { kind: "rl", staleness: { max: null } });
});

test("values are equal whatever the order of their keys", () => {
  assert.ok(sameValue({ a: [1, { b: 2, c: 3 }] }, { a: [1, { c: 3, b: 2 }] }));
  assert.ok(!sameValue({ a: 1 }, { a: 1, b: undefined }) && !sameValue([1], [1, 2]) && !sameValue(0, null));
});
