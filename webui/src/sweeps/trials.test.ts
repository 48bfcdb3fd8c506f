import assert from "node:assert/strict";
import { test } from "vitest";

import type { Trial } from "../api/schema.d.ts";
import { actionsOf, bestSoFar, effects, labels, progressText, sorted, valueText } from "./trials.ts";

const trial = (number: number, objective: number | null, value: unknown = number): Trial => ({ number, objective, values: { "/a": value }, run: null, state: "succeeded", skipped: "", train_step: 1 });

test("a parameter is named by its last part unless that is short or two share it", () => {
  assert.deepEqual([...labels(["/trainer/learning_rate", "/staleness/max"]).values()], ["learning_rate", "staleness.max"]);
  assert.deepEqual([...labels(["/sft/learning_rate", "/trainer/learning_rate"]).values()], ["sft.learning_rate", "trainer.learning_rate"]);
});

test("the best so far never gets worse, for both goals", () => {
  const trials = [trial(3, 0.4), trial(1, 0.5), trial(2, null), trial(4, 0.9)];
  assert.deepEqual(bestSoFar(trials, "max").map(({ best }) => best), [0.5, 0.5, 0.9]);
  assert.deepEqual(bestSoFar(trials, "min"), [{ number: 1, value: 0.5, best: 0.5 }, { number: 3, value: 0.4, best: 0.4 }, { number: 4, value: 0.9, best: 0.4 }]);
});

test("trials without a value are last in both directions", () => {
  const trials = [trial(1, null), trial(2, 0.2), trial(3, 0.7)];
  const numbers = (descending: boolean) => sorted(trials, "objective", descending).map(({ number }) => number);
  assert.deepEqual([numbers(true), numbers(false)], [[3, 2, 1], [2, 3, 1]]);
  assert.deepEqual(sorted([trial(1, 0, "b"), trial(2, 0, "a")], "/a", false).map(({ number }) => number), [2, 1]);
});

test("values are short", () => {
  assert.deepEqual([4, 1e-6, 0.123456, "grpo", true, [1]].map(valueText), ["4", "1.0e-6", "0.123", "grpo", "true", "[1]"]);
});

test("progress counts ended, active, waiting, failed and skipped trials", () => {
  const counts = { waiting: 2, running: 3, succeeded: 7, stopped: 1, failed: 1, skipped: 0 };
  assert.equal(progressText({ counts, trials: 14 }), "9 of 14 ended, 3 active, 2 waiting, 1 failed");
});

test("each action says what is lost", () => {
  const counts = { running: 2, waiting: 1 };
  assert.match(effects("pause", { counts }), /^2 active runs save a checkpoint and release the slots/);
  assert.match(effects("cancel", { counts }), /^2 active runs end without a last checkpoint: work since the newest one is lost\. 1 waiting trial is skipped/);
  assert.match(effects("cancel", { counts: {} }), /^0 waiting trials are skipped/);
  assert.match(effects("resume", { counts }), /1 waiting trial can start/);
  assert.deepEqual([actionsOf("RUNNING"), actionsOf("PAUSED"), actionsOf("FINISHED")], [["pause", "cancel"], ["resume", "cancel"], []]);
});
