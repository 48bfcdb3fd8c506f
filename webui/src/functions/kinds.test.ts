import assert from "node:assert/strict";
import { test } from "vitest";

import { nameOfFile, signature, sourceErrors, specLines, usesText } from "./kinds.ts";

test("a signature names the given parameters and the options", () => {
  assert.equal(signature({ kind: "reward", options: ["half_at"], any_option: false }), "score(prompt, completion, answer, half_at=…)");
  assert.equal(signature({ kind: "workflow", options: [], any_option: true }), "run(episode, **options)");
});

test("a loss is named in the section of the algorithm", () => {
  assert.equal(specLines({ kind: "loss", ref: "tapered@1", options: [] }), "algorithm:\n  loss_function: tapered@1\n");
  assert.equal(specLines({ kind: "reward", ref: "close@2", options: ["half_at"] }), "reward:\n  function: close@2\n  # options: {half_at: …}\n");
});

test("errors of the source are at their line, and those of other fields are left to the form", () => {
  const problems = [
    { pointer: "/source", code: "syntax", message: "line 12: invalid syntax" },
    { pointer: "/source", code: "no_entry_point", message: "a reward defines `def score`" },
    { pointer: "/name", code: "invalid", message: "letters" },
  ];
  assert.deepEqual(sourceErrors(problems), [
    { line: 12, message: "invalid syntax" },
    { line: null, message: "a reward defines `def score`" },
  ]);
});

test("a file name becomes a valid name", () => {
  assert.equal(nameOfFile("My reward (2).py"), "My-reward-2-");
  assert.equal(nameOfFile("__init__.py"), "init__");
});

test("uses are counted, with a lower bound when there are more pages", () => {
  assert.equal(usesText(0, false), "No run uses it yet.");
  assert.equal(usesText(1, false), "1 run uses it.");
  assert.equal(usesText(5, true), "5 or more runs use it.");
});
