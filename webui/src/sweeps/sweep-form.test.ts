import assert from "node:assert/strict";
import { test } from "vitest";

import { atPoint, costText, NEW_PARAMETER, parseValues, planOf, type PlanFields } from "./sweep-form.ts";

const FIELDS: PlanFields = {
  method: "grid", samples: "", seed: 1, metric: "reward/mean", goal: "max", atStep: "", worseThan: "", target: "",
  parameters: [
    { ...NEW_PARAMETER, pointer: "/trainer/learning_rate", values: "1e-6, 1e-5, .5" },
    { ...NEW_PARAMETER, pointer: "/staleness/max", values: "0, 4" },
  ],
};

test("values are numbers, words, booleans, lists and objects", () => {
  assert.deepEqual(parseValues('1e-6, .5, grpo, true, [1, 2], {"a": [1, 2]},, null'), [1e-6, 0.5, "grpo", true, [1, 2], { a: [1, 2] }, null]);
  assert.deepEqual(parseValues(" "), []);
});

test("a grid has the product of its values, and random points their number", () => {
  const grid = planOf(FIELDS);
  assert.ok("plan" in grid);
  assert.equal(grid.trials, 6);
  assert.deepEqual(grid.first, { "/trainer/learning_rate": 1e-6, "/staleness/max": 0 });
  assert.equal(grid.plan.samples, null);
  const random = planOf({ ...FIELDS, method: "random", samples: 9, target: 0.9, parameters: [{ ...NEW_PARAMETER, pointer: "/trainer/learning_rate", by: "range", low: 1e-7, high: 1e-4 }] });
  assert.ok("plan" in random);
  assert.equal(random.trials, 9);
  assert.deepEqual(random.plan.parameters[0], { pointer: "/trainer/learning_rate", values: null, low: 1e-7, high: 1e-4, scale: "log", integer: false });
  assert.deepEqual(random.plan.stop, { at_step: null, worse_than: null, target: 0.9 });
});

test("each problem names its parameter and field", () => {
  const fields = (changed: Partial<PlanFields>): string[] => {
    const planned = planOf({ ...FIELDS, ...changed });
    return "problems" in planned ? planned.problems.map(({ parameter, field }) => `${parameter ?? "plan"} ${field}`) : [];
  };
  assert.deepEqual(fields({ parameters: [] }), ["plan parameters"]);
  assert.deepEqual(fields({ parameters: [FIELDS.parameters[0]!, FIELDS.parameters[0]!] }), ["1 pointer"]);
  assert.deepEqual(fields({ parameters: [{ ...NEW_PARAMETER }] }), ["0 pointer", "0 values"]);
  assert.deepEqual(fields({ method: "random", samples: "", parameters: [{ ...NEW_PARAMETER, pointer: "/a", by: "range", low: 0, high: 0 }] }), ["0 high", "0 low", "plan samples"]);
  assert.deepEqual(fields({ atStep: 10 }), ["plan worseThan"]);
  assert.deepEqual(fields({ metric: " " }), ["plan metric"]);
  assert.deepEqual(fields({ parameters: [{ ...NEW_PARAMETER, pointer: "/a", values: Array.from({ length: 201 }, (_, n) => n).join() }] }), ["plan parameters"]);
});

test("a point is set into a copy of the spec, and missing sections are made", () => {
  const spec = { trainer: { total_train_steps: 5 }, evaluation: null };
  assert.deepEqual(atPoint(spec, { "/trainer/learning_rate": 1, "/evaluation/prompts": 8 }), { trainer: { total_train_steps: 5, learning_rate: 1 }, evaluation: { prompts: 8 } });
  assert.deepEqual(spec, { trainer: { total_train_steps: 5 }, evaluation: null });
});

test("the cost says trials, slots at the same time, and time where it is known", () => {
  assert.equal(costText(12, 2, 3, 1800), "12 trials, 2 at a time, with 3 slots each: at most 6 slots at the same time. From earlier runs of this shape: about 3.0 h.");
  assert.equal(costText(1, 5, 1, null), "1 trial, 1 at a time, with 1 slot each: at most 1 slot at the same time.");
  assert.equal(costText(4, 2, null, null), "4 trials, 2 at a time.");
});
