import assert from "node:assert/strict";
import { test } from "vitest";

import { changesFromDefaults } from "./default-changes.ts";

test("a spec differs from the defaults where it says something else, in the order of the reference", () => {
  const found = changesFromDefaults({ seed: 7, notes: "", secrets: [], staleness: { max: 8, on_straggler: null }, name: "x", evaluation: null, budget: { max_attempts: 3 } });
  assert.deepEqual(found, [
    { path: "name", value: "x", byDefault: "none" },
    { path: "staleness.max", value: "8", byDefault: "4" },
    { path: "seed", value: "7", byDefault: "1" },
  ]);
});

test("lists and options are compared by their content", () => {
  assert.deepEqual(changesFromDefaults({ reward: { options: {} }, trainer: { adam_betas: [0.9, 0.5] } }).map(({ path, value }) => [path, value]), [["trainer.adam_betas", "[0.9,0.5]"]]);
});
