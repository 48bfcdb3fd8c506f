import assert from "node:assert/strict";
import { test } from "node:test";

import { asJson, asYaml, lineOf, parseSpec, withValue } from "./spec-text.ts";

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

test("a field written by the form leaves the rest of the text alone", () => {
  const written = withValue(TEXT, ["staleness", "max"], 1);
  assert.equal(written, TEXT.replace("max: 4", "max: 1"));
});

test("a field taken out leaves no empty section", () => {
  assert.deepEqual(Object.keys(specOf(withValue(TEXT, ["rollout", "group_size"], undefined))), ["name", "staleness", "evaluation"]);
});

test("a section that was null is made when a field of it is written", () => {
  assert.deepEqual(specOf(withValue(TEXT, ["evaluation", "prompts"], 64))["evaluation"], { prompts: 64 });
});

test("form, YAML and JSON hold the same spec", () => {
  const spec = specOf(TEXT);
  assert.deepEqual(specOf(asYaml(spec)), spec);
  assert.deepEqual(specOf(asJson(spec)), spec);
  assert.deepEqual(specOf(withValue(asJson(spec), ["staleness", "max"], 2))["staleness"], { max: 2 });
});

test("a fault of the text names its line", () => {
  const parsed = parseSpec("name: a\nrollout: [1, 2\nseed: 3\n");
  assert.ok("fault" in parsed && parsed.line >= 2);
});

test("a pointer finds its line, a missing key its section's", () => {
  assert.equal(lineOf(TEXT, "/staleness/max"), 6);
  assert.equal(lineOf(TEXT, "/rollout/top_p"), 4);
  assert.equal(lineOf(TEXT, "/nothing"), null);
});
