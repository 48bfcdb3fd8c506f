import assert from "node:assert/strict";
import { test } from "vitest";

import type { Points } from "./series.ts";
import { reducedSpan, withDetail } from "./zoom.ts";

/** Buckets of ten steps each up to step 50, then two live steps. A step takes a second. */
const line: Points = {
  x: [10, 20, 30, 40, 50, 51, 52], y: [1, 2, 3, 4, 5, 5, 6], at: [10, 20, 30, 40, 50, 51, 52],
  buckets: { low: [0, 1, 2, 3, 4, 5, 6], high: [2, 3, 4, 5, 6, 5, 6], count: [10, 10, 10, 10, 10, 1, 1] },
};

test("a zoom asks for its buckets and the neighbor on each side", () => {
  const span = reducedSpan(line, line, { min: 25, max: 35 });
  assert.deepEqual(span, { from: 11, to: 40, fromAt: 10, toAt: 40 });
});

test("a zoom between two points asks for the bucket that it lies in", () => {
  assert.deepEqual(reducedSpan(line, line, { min: 32, max: 38 }), { from: 21, to: 40, fromAt: 20, toAt: 40 });
});

test("live steps at the end are single points already, so that new ones ask for nothing", () => {
  const span = reducedSpan(line, line, { min: 45, max: 60 });
  assert.equal(span?.to, 50);
  assert.equal(reducedSpan(line, line, { min: 50.5, max: 60 })?.to, 50); // the neighbor alone
  const { buckets: _, ...single } = line;
  assert.equal(reducedSpan(single, single, { min: 0, max: 60 }), null);
});

test("a zoom over another axis finds the points by their time", () => {
  const placed = { ...line, x: line.x.map((x) => x * 100) };
  assert.deepEqual(reducedSpan(line, placed, { min: 2500, max: 3500 }), reducedSpan(line, line, { min: 25, max: 35 }));
});

test("the first bucket has no begin, because what lies before it is unknown", () => {
  assert.deepEqual(reducedSpan(line, line, { min: 0, max: 12 }), { from: undefined, to: 20, fromAt: -Infinity, toAt: 20 });
});

test("finer points take the place of the buckets of their part only", () => {
  const steps = Array.from({ length: 20 }, (_, index) => index + 21);
  const detail: Points = { x: steps, y: steps, at: steps };
  const whole = withDetail(line, detail, { from: 21, to: 40, fromAt: 20, toAt: 40 });
  assert.deepEqual(whole.x, [10, 20, ...steps, 50, 51, 52]);
  assert.deepEqual(whole.buckets?.count, [10, 10, ...steps.map(() => 1), 10, 1, 1]);
  assert.deepEqual(withDetail(line, { x: [], y: [], at: [] }, { from: 21, to: 40, fromAt: 20, toAt: 40 }), line);
});
