import assert from "node:assert/strict";
import { test } from "vitest";

import type { Version } from "../api/schema.d.ts";
import { bars, comparable, diffText, leakTexts, originText, ratiosOf } from "./version-text.ts";

test("a version says where its rows come from", () => {
  assert.equal(originText(null), "uploaded");
  assert.equal(originText({ from: "sums@1", ratios: { train: 0.9, eval: 0.1 }, seed: 0, stratify: null }), "split of sums@1: train 0.9, eval 0.1; seed 0");
  assert.equal(originText({ merged: ["a@1", "b@2"] }), "merged from a@1, b@2");
});

test("a difference counts prompts", () => {
  const counts = { added: 1200, removed: 0, changed: 3, unchanged: 5 };
  assert.equal(diffText({ identical: false, ...counts } as never), "1,200 prompts added, 0 removed, 3 changed, 5 unchanged.");
  assert.equal(diffText({ identical: true, ...counts } as never), "The versions have the same rows.");
});

test("leaks are sentences with their share of the smaller split", () => {
  assert.deepEqual(leakTexts({ "eval, train": 1, "sft, train": 40 }, { train: 100, eval: 10, sft: 80 }), [
    "40 prompts are in sft and train, 50.0 % of the smallest of them",
    "1 prompt is in eval and train, 10.0 % of the smallest of them",
  ]);
  assert.deepEqual(leakTexts({}, {}), []);
});

test("ratios add up to 100 percent and have names of their own", () => {
  assert.deepEqual(ratiosOf([{ name: "train", percent: 90 }, { name: " eval ", percent: "10" }]), { ratios: { train: 0.9, eval: 0.1 } });
  const problem = (fields: [string, number][]) => { const found = ratiosOf(fields.map(([name, percent]) => ({ name, percent }))); return "problem" in found ? found.problem : ""; };
  assert.match(problem([["train", 90], ["eval", 5]]), /95 %/);
  assert.match(problem([["a", 50], ["a", 50]]), /same name/);
  assert.match(problem([["", 100]]), /Name each/);
  assert.match(problem([["a", 100], ["b", 0]]), /more than 0/);
});

test("bars are relative to the highest bin", () => {
  assert.deepEqual(bars([{ above: -1, up_to: 4, rows: 2 }, { above: 4, up_to: 8, rows: 0 }, { above: 8, up_to: 12, rows: 4 }]).map(({ from, to, height }) => [from, to, height]), [[0, 4, 50], [5, 8, 0], [9, 12, 100]]);
});

test("the version before is the first to compare with", () => {
  const versions = [3, 2, 1].map((number) => ({ id: `v${number}`, number })) as Version[];
  assert.deepEqual(comparable(versions, versions[1]!).map(({ number }) => number), [1, 3]);
});
