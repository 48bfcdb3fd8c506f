import assert from "node:assert/strict";
import { test } from "vitest";

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

test("writing a field in the form does not change the rest of the text", () => {
  const written = withValue(TEXT, ["staleness", "max"], 1);
  assert.equal(written, TEXT.replace("max: 4", "max: 1"));
});

test("removing the last field of a section removes the section", () => {
  assert.deepEqual(Object.keys(specOf(withValue(TEXT, ["rollout", "group_size"], undefined))), ["name", "staleness", "evaluation"]);
});

test("writing a field of a null section creates the section", () => {
  assert.deepEqual(specOf(withValue(TEXT, ["evaluation", "prompts"], 64))["evaluation"], { prompts: 64 });
});

test("form, YAML and JSON hold the same spec", () => {
  const spec = specOf(TEXT);
  assert.deepEqual(specOf(asYaml(spec)), spec);
  assert.deepEqual(specOf(asJson(spec)), spec);
  assert.deepEqual(specOf(withValue(asJson(spec), ["staleness", "max"], 2))["staleness"], { max: 2 });
});

test("a syntax error has its line", () => {
  const parsed = parseSpec("name: a\nrollout: [1, 2\nseed: 3\n");
  assert.ok("syntaxError" in parsed && parsed.syntaxError.line >= 2);
});

test("a pointer resolves to its line, and a missing key to the line of its section", () => {
  assert.equal(lineOf(TEXT, "/staleness/max"), 6);
  assert.equal(lineOf(TEXT, "/rollout/top_p"), 4);
  assert.equal(lineOf(TEXT, "/nothing"), null);
});
