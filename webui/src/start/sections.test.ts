import assert from "node:assert/strict";
import { test } from "vitest";

import { fieldsOf, findFields, SECTIONS } from "./sections.ts";
import { pointerOf, SPEC_FIELDS } from "./spec-schema.ts";

const section = (title: string) => SECTIONS.find((entry) => entry.title === title)!;

test("every field that a section shows first exists", () => {
  for (const { title, first, roots } of SECTIONS) {
    const known = SPEC_FIELDS.filter(({ path }) => roots.includes(path[0]!)).map(({ path }) => pointerOf(path));
    assert.deepEqual(first.filter((pointer) => !known.includes(pointer)), [], title);
  }
});

test("a section shows its first fields, and the others on demand", () => {
  const staleness = section("Staleness and rollout");
  assert.deepEqual(fieldsOf(staleness, false).map(({ path }) => pointerOf(path)), staleness.first);
  const all = fieldsOf(staleness, true);
  assert.ok(all.length > staleness.first.length && new Set(all).size === all.length);
});

test("a search finds fields by name and explanation, hidden ones too", () => {
  const found = findFields(section("Staleness and rollout"), "rollout.top_p").map(({ path }) => pointerOf(path));
  assert.ok(found.includes("/rollout/top_p"));
  assert.deepEqual(findFields(section("Dataset"), "no such words"), []);
});
