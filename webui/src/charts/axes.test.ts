import assert from "node:assert/strict";
import { test } from "vitest";

import { cumulative, newestOf, overReference } from "./axes.ts";
import { nearest } from "./readout.ts";
import { overAmount, type Points } from "./series.ts";

const points = (x: number[], y: number[]): Points => ({ x, y, at: x.map((one) => one * 10) });

test("a value lies at the tokens trained on up to its step", () => {
  const tokens = cumulative(points([1, 2, 3], [100, 50, 200]));
  assert.deepEqual(overReference(points([0, 1, 3, 4], [9, 1, 3, 4]), tokens), { x: [100, 350], y: [1, 4], at: [10, 40] });
});

test("a bucket of tokens adds all of its steps, and one of versions ends at its largest", () => {
  const reduced = { ...points([10, 20], [5, 15]), buckets: { low: [1, 11], high: [10, 20], count: [10, 10] } };
  assert.deepEqual(cumulative(reduced).value, [50, 200]);
  assert.deepEqual(newestOf(reduced).value, [10, 20]);
});

test("of several steps with one policy version the newest value is drawn", () => {
  const versions = { x: [1, 2, 3], value: [1, 1, 2] };
  assert.deepEqual(overReference(points([1, 2, 3], [7, 8, 9]), versions), { x: [1, 2], y: [8, 9], at: [20, 30] });
});

test("an amount that stands still in a pause draws one point there", () => {
  assert.deepEqual(overAmount(points([1, 2, 3, 4], [1, 2, 3, 4]), (at) => Math.min(at, 20)).x, [10, 20]);
});

test("the readout takes the nearest point, and none that is far away", () => {
  const line = points([1, 5, 20], [0, 0, 0]);
  assert.deepEqual([nearest(line, 4, 2), nearest(line, 2.9, 2), nearest(line, 12, 5), nearest(line, 30, 5), nearest(line, 20, 0)], [1, 0, null, null, 2]);
  assert.equal(nearest({ x: [] }, 1, 9), null);
});
