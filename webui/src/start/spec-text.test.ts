import assert from "node:assert/strict";
import { test } from "vitest";

import { stateOf } from "./spec-state.ts";
import { asYaml, lineOf, parseSpec, readText, withValue } from "./spec-text.ts";

const TEXT = `# first try
name: letters
rollout:
  group_size: 8 # G
staleness:
  max: 4
evaluation: null
`;

function specOf(text: string) {
  const parsed = parseSpec(text);
  assert.ok("spec" in parsed);
  return parsed.spec;
}

test("writing a field in the form changes nothing else in the text, also no comment", () => {
  const written = withValue(TEXT, ["staleness", "max"], 1);
  assert.equal(written, TEXT.replace("max: 4", "max: 1"));
});

test("removing the last field of a section removes the section", () => {
  assert.deepEqual(Object.keys(specOf(withValue(TEXT, ["rollout", "group_size"], undefined))), ["name", "staleness", "evaluation"]);
});

test("writing a field of a null section creates the section", () => {
  assert.deepEqual(specOf(withValue(TEXT, ["evaluation", "prompts"], 64))["evaluation"], { prompts: 64 });
});

test("form, YAML and pasted JSON hold the same spec", () => {
  const spec = specOf(TEXT);
  assert.deepEqual(specOf(asYaml(spec)), spec);
  const json = JSON.stringify(spec, null, 2);
  assert.deepEqual(specOf(json), spec);
  assert.deepEqual(JSON.parse(withValue(json, ["staleness", "max"], 2)), { ...spec, staleness: { max: 2 } });
});

test("values that look like other types survive the way to YAML and back", () => {
  const spec = { name: "no", notes: "a: b # c\n- d", seed: 1e-7, dataset: { version: "007" }, tags: ["yes", "1", "null", ""], reward: { options: { "a/b": true } } };
  assert.deepEqual(specOf(asYaml(spec)), spec);
});

test("a syntax error has its line and keeps the spec that could be read", () => {
  const state = readText(stateOf({ name: "before" }), "name: a\nrollout: [1, 2\nseed: 3\n");
  assert.deepEqual(state.spec, { name: "before" });
  assert.ok(state.syntaxError !== null && state.syntaxError.line >= 2);
  assert.deepEqual(readText(state, "name: b"), { spec: { name: "b" }, text: "name: b", syntaxError: null });
});

test("a pointer resolves to its line, and a missing key to the line of its section", () => {
  assert.equal(lineOf(TEXT, "/staleness/max"), 6);
  assert.equal(lineOf(TEXT, "/rollout"), 3);
  assert.equal(lineOf(TEXT, "/rollout/top_p"), 3);
  assert.equal(lineOf(TEXT, "/nothing"), null);
  assert.equal(lineOf("reward:\n  options:\n    a/b: 1\n", "/reward/options/a~1b"), 3);
  assert.equal(lineOf("secrets:\n  - {name: A}\n  - {name: B}\n", "/secrets/1/name"), 3);
});
