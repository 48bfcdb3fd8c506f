import assert from "node:assert/strict";
import { test } from "node:test";

import { axisLabels, boundSegments, insert, joinAttempts, overSteps, overTime, axisPadding, legendValue, smooth, toCsv, type Points } from "./series.ts";

const points = (pairs: [number, number][], at = 0): Points => ({
  x: pairs.map(([x]) => x), y: pairs.map(([, y]) => y), at: pairs.map(([x]) => at + x * 10),
});

test("smoothing starts at the first value and keeps a constant series constant", () => {
  assert.deepEqual(smooth([2, 2, 2], 0.9).map((value) => Number(value.toFixed(9))), [2, 2, 2]);
  assert.equal(smooth([4, 0], 0.5)[0], 4);
  assert.deepEqual(smooth([1, 5], 0), [1, 5]);
});

test("a late point is inserted in order and a repeated x is ignored", () => {
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

test("an attempt without points does not change the line", () => {
  assert.deepEqual(joinAttempts([points([[1, 1]]), points([])]).y, [1]);
});

test("values on the time axis are placed within the step in progress", () => {
  const steps: Points = { x: [1, 2, 3], y: [0, 0, 0], at: [100, 110, 130] };
  const placed = overSteps({ x: [0, 1, 2, 3, 4], y: [5, 6, 7, 8, 9], at: [90, 105, 120, 140, 150] }, steps);
  assert.deepEqual(placed.x, [1.5, 2.5, 3]);
  assert.deepEqual(placed.y, [6, 7, 9]);
});

test("on the time axis x is seconds since the origin and increases strictly", () => {
  const placed = overTime({ x: [1, 2, 3], y: [1, 2, 3], at: [100, 100, 107] }, 100);
  assert.deepEqual(placed.x, [0, 7]);
});

test("a constant series gets padding even if smoothing changed its last digit", () => {
  const smoothed = smooth(Array.from({ length: 60 }, () => 80), 0.5);
  const [low, high] = [Math.min(80, ...smoothed), Math.max(80, ...smoothed)];
  assert.ok(low < high, "smoothing no longer changes the last digit, so this test checks nothing");
  assert.ok(axisPadding(low, high) > 1);
  assert.ok(axisPadding(-80, -80 + 1e-14) > 1);
  assert.ok(axisPadding(0, 0) > 0);
});

test("a small range of values gets proportional padding", () => {
  assert.equal(axisPadding(2e-7, 6e-7).toExponential(1), "2.4e-8");
  assert.equal(axisPadding(0, 10).toFixed(3), "0.600");
});

test("axis labels are distinct even for a narrow range", () => {
  assert.deepEqual(axisLabels([0, 0.5, 1]), ["0", "0.50", "1"]);
  assert.deepEqual(axisLabels([5.246, 5.248, 5.25]), ["5.246", "5.248", "5.250"]);
  assert.deepEqual(axisLabels([null, 1, 2], (value) => `${value} s`), ["", "1 s", "2 s"]);
});

test("a line without a point at the crosshair has no legend value", () => {
  const line = points([[1, 5], [2, 6]]);
  assert.equal(legendValue(line, null), 6);
  assert.equal(legendValue(line, { value: 5 }), 5);
  assert.equal(legendValue(line, { value: undefined }), null);
  assert.equal(legendValue(line, { value: null }), null);
  assert.equal(legendValue(points([]), null), null);
});

test("a changed bound is drawn with its value at each step", () => {
  const changed = points([[1, 6], [2, 6], [3, 1], [4, 1]]);
  assert.deepEqual(boundSegments(changed, 1, 0, 9), [{ from: 0, to: 3, value: 6 }, { from: 3, to: 9, value: 1 }]);
  assert.deepEqual(boundSegments(undefined, 4, 0, 9), [{ from: 0, to: 9, value: 4 }]);
  assert.deepEqual(boundSegments(points([]), 4, 0, 9), [{ from: 0, to: 9, value: 4 }]);
});

test("a CSV has one row per x, exact values and an empty cell where a line has no point", () => {
  const lines = [{ label: "mean", points: points([[1, 0.1], [10, 1 / 3]]) }, { label: 'engine "0", a', points: points([[2, 0]]) }];
  assert.equal(toCsv("step", lines), 'step,"mean","engine ""0"", a"\n1,0.1,\n2,,0\n10,0.3333333333333333,\n');
});
