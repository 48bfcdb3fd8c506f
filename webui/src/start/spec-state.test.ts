import assert from "node:assert/strict";
import { test } from "vitest";

import { valueAt, withKey } from "./spec-state.ts";

const SPEC = { name: "letters", rollout: { group_size: 8 }, evaluation: null };

test("writing a key keeps the others and their order", () => {
  const written = withKey(SPEC, ["rollout", "group_size"], 4);
  assert.deepEqual(written, { ...SPEC, rollout: { group_size: 4 } });
  assert.deepEqual(Object.keys(written), Object.keys(SPEC));
  assert.equal(SPEC.rollout.group_size, 8);
});

test("removing the last key of a section removes the section, and removing what is absent changes nothing", () => {
  assert.deepEqual(withKey(SPEC, ["rollout", "group_size"], undefined), { name: "letters", evaluation: null });
  assert.deepEqual(withKey(SPEC, ["trainer", "dtype"], undefined), SPEC);
});

test("a key of a null or absent section creates the section", () => {
  assert.deepEqual(withKey(SPEC, ["evaluation", "prompts"], 64)["evaluation"], { prompts: 64 });
  assert.deepEqual(withKey(SPEC, ["algorithm", "kl", "weight"], 0.1)["algorithm"], { kl: { weight: 0.1 } });
});

test("the value at a path is undefined where the path leaves the spec", () => {
  assert.equal(valueAt(SPEC, ["rollout", "group_size"]), 8);
  assert.equal(valueAt(SPEC, ["evaluation", "prompts"]), undefined);
});
