import assert from "node:assert/strict";
import { test } from "node:test";

import { nextInGroup } from "./roving-focus.ts";

test("arrows move around the group, Home and End to its ends", () => {
  assert.deepEqual(["ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "Home", "End"].map((key) => nextInGroup(key, 1, 3)), [2, 2, 0, 0, 0, 2]);
  assert.equal(nextInGroup("ArrowRight", 2, 3), 0);
  assert.equal(nextInGroup("ArrowLeft", 0, 3), 2);
});

test("other keys and an empty group are left alone", () => {
  assert.equal(nextInGroup("Tab", 1, 3), null);
  assert.equal(nextInGroup("ArrowRight", 0, 0), null);
});
