import assert from "node:assert/strict";
import { test } from "node:test";

import { axisLabels, boundPieces, insert, joinAttempts, overSteps, overTime, paddingOf, shownValue, smooth, type Points } from "./series.ts";

const points = (pairs: [number, number][], at = 0): Points => ({
  x: pairs.map(([x]) => x), y: pairs.map(([, y]) => y), at: pairs.map(([x]) => at + x * 10),
});

test("smoothing starts at the first value and keeps a constant series constant", () => {
  assert.deepEqual(smooth([2, 2, 2], 0.9).map((value) => Number(value.toFixed(9))), [2, 2, 2]);
  assert.equal(smooth([4, 0], 0.5)[0], 4);
  assert.deepEqual(smooth([1, 5], 0), [1, 5]);
});

test("a point that comes late is put in its place and a repeated x changes nothing", () => {
  const series = points([[1, 10], [3, 30]]);
  assert.equal(insert(series, 2, 20, 20), true);
  assert.equal(insert(series, 2, 99, 20), false);
  assert.deepEqual(series.x, [1, 2, 3]);
  assert.deepEqual(series.y, [10, 20, 30]);
});

test("a resumed attempt replaces the steps that were lost", () => {
  const joined = joinAttempts([points([[1, 1], [2, 2], [3, 3], [4, 4]]), points([[3, 30], [4, 40], [5, 50]], 100)]);
  assert.deepEqual(joined.x, [1, 2, 3, 4, 5]);
  assert.deepEqual(joined.y, [1, 2, 30, 40, 50]);
});

test("an attempt without points leaves the line as it was", () => {
  assert.deepEqual(joinAttempts([points([[1, 1]]), points([])]).y, [1]);
});

test("values by the clock are placed within the step under way", () => {
  const steps: Points = { x: [1, 2, 3], y: [0, 0, 0], at: [100, 110, 130] };
  const placed = overSteps({ x: [0, 1, 2, 3, 4], y: [5, 6, 7, 8, 9], at: [90, 105, 120, 140, 150] }, steps);
  assert.deepEqual(placed.x, [1.5, 2.5, 3]);
  assert.deepEqual(placed.y, [6, 7, 9]);
});

test("over time the x is seconds since the origin and rises strictly", () => {
  const placed = overTime({ x: [1, 2, 3], y: [1, 2, 3], at: [100, 100, 107] }, 100);
  assert.deepEqual(placed.x, [0, 7]);
});

test("a constant series gets room around it, also when smoothing has moved its last digit", () => {
  const smoothed = smooth(Array.from({ length: 60 }, () => 80), 0.5);
  const [low, high] = [Math.min(80, ...smoothed), Math.max(80, ...smoothed)];
  assert.ok(low < high, "smoothing no longer moves the last digit: this test shows nothing");
  assert.ok(paddingOf(low, high) > 1);
  assert.ok(paddingOf(-80, -80 + 1e-14) > 1);
  assert.ok(paddingOf(0, 0) > 0);
});

test("a small range of values is kept as it is", () => {
  assert.equal(paddingOf(2e-7, 6e-7).toExponential(1), "2.4e-8");
  assert.equal(paddingOf(0, 10).toFixed(3), "0.600");
});

test("labels of an axis differ from each other, however narrow its range", () => {
  assert.deepEqual(axisLabels([0, 0.5, 1]), ["0", "0.50", "1"]);
  assert.deepEqual(axisLabels([5.246, 5.248, 5.25]), ["5.246", "5.248", "5.250"]);
  assert.deepEqual(axisLabels([null, 1, 2], (value) => `${value} s`), ["", "1 s", "2 s"]);
});

test("under the crosshair a line without a point there has no value, and not its newest one", () => {
  const line = points([[1, 5], [2, 6]]);
  assert.equal(shownValue(line, null), 6);
  assert.equal(shownValue(line, { value: 5 }), 5);
  assert.equal(shownValue(line, { value: undefined }), null);
  assert.equal(shownValue(line, { value: null }), null);
  assert.equal(shownValue(points([]), null), null);
});

test("a bound that was changed is drawn as it was at each step", () => {
  const changed = points([[1, 6], [2, 6], [3, 1], [4, 1]]);
  assert.deepEqual(boundPieces(changed, 1, 0, 9), [{ from: 0, to: 3, value: 6 }, { from: 3, to: 9, value: 1 }]);
  assert.deepEqual(boundPieces(undefined, 4, 0, 9), [{ from: 0, to: 9, value: 4 }]);
  assert.deepEqual(boundPieces(points([]), 4, 0, 9), [{ from: 0, to: 9, value: 4 }]);
});
