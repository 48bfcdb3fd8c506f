import assert from "node:assert/strict";
import { test } from "vitest";

import type { Trial } from "../api/schema.d.ts";
import { axesOf, lineOf, OBJECTIVE, pathOf, ranks, scaleOf } from "./coordinates.ts";

const trial = (number: number, objective: number | null, values: Record<string, unknown>): Trial => ({ number, objective, values, run: null, state: "succeeded", skipped: "", train_step: 1 });

test("numbers are spread by their logarithm when the parameter says so or they span much", () => {
  assert.ok(Math.abs(scaleOf([1e-6, 1e-4], true).position(1e-5)! - 0.5) < 1e-9);
  assert.ok(Math.abs(scaleOf([1e-6, 1e-4], false).position(1e-5)! - 0.5) < 1e-9);
  assert.equal(scaleOf([0, 4], true).position(1), 0.25);
});

test("words have one step each, and one value is in the middle", () => {
  const words = scaleOf(["grpo", "dapo", "grpo"], false);
  assert.deepEqual(words.ticks, [{ at: 0, label: "dapo" }, { at: 1, label: "grpo" }]);
  assert.equal(scaleOf([3, 3], false).position(3), 0.5);
  assert.equal(words.position(null), null);
});

test("tick labels leave room for each other", () => {
  assert.deepEqual(scaleOf([0, 1, 2, 100], false).ticks.map(({ label }) => label), ["0", "100"]);
  assert.deepEqual(scaleOf([0, 2, 4], false).ticks.map(({ label }) => label), ["0", "2", "4"]);
});

test("a line ends at the last parameter while the trial has no objective", () => {
  const trials = [trial(1, 0.5, { "/a": 1, "/b": "x" }), trial(2, null, { "/a": 3, "/b": "y" })];
  const axes = axesOf([{ pointer: "/a", scale: "linear" }, { pointer: "/b", scale: "linear" }], trials, new Map([["/a", "a"]]), "reward/mean", 0, 100);
  assert.deepEqual(axes.map(({ key, label, x }) => [key, label, x]), [["/a", "a", 0], ["/b", "/b", 50], [OBJECTIVE, "reward/mean", 100]]);
  assert.deepEqual(lineOf(trials[0]!, axes, 0, 10), [[0, 10], [50, 10], [100, 5]]);
  assert.deepEqual(lineOf(trials[1]!, axes, 0, 10), [[0, 0], [50, 0]]);
  assert.equal(pathOf([[0, 10], [50, 0]]), "M0.0 10.0L50.0 0.0");
});

test("ranks follow the goal", () => {
  const trials = [trial(1, 0.2, {}), trial(2, 0.9, {}), trial(3, null, {})];
  assert.deepEqual([...ranks(trials, "max")], [[1, 0], [2, 1], [3, null]]);
  assert.deepEqual([...ranks(trials, "min")], [[1, 1], [2, 0], [3, null]]);
});
