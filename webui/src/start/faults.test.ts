import assert from "node:assert/strict";
import { test } from "vitest";

import { count, errorsByField, fieldOf, titleOf } from "./faults.ts";

test("a pointer leads to its field, or to the field that holds it", () => {
  assert.equal(fieldOf("/rollout/group_size"), "/rollout/group_size");
  assert.equal(fieldOf("/dataset/weights/maths"), "/dataset/weights");
  assert.equal(fieldOf("/rollout"), null);
  assert.equal(fieldOf("/unheard_of"), null);
  assert.equal(fieldOf(""), null);
});

test("a pointer reads as words", () => {
  assert.equal(titleOf("/rollout/group_size"), "Rollout › Group size");
  assert.equal(titleOf("/dataset/weights/a~1b"), "Dataset › Weights › A/b");
  assert.equal(titleOf(""), "The whole spec");
});

test("a field shows its first error, and which part of it is meant", () => {
  const found = errorsByField([
    { pointer: "/dataset/weights/maths", code: "unknown_source", message: "no rows" },
    { pointer: "/dataset/weights", code: "x", message: "second" },
    { pointer: "/unheard_of", code: "unknown_key", message: "unknown" },
  ]);
  assert.deepEqual([...found], [["/dataset/weights", "maths: no rows"]]);
});

test("counts have their plural", () => {
  assert.deepEqual([count(0, "error"), count(1, "error"), count(2, "error")], ["0 errors", "1 error", "2 errors"]);
});
