import assert from "node:assert/strict";
import { test } from "vitest";

import {
  axisLabels, axisPadding, boundSegments, concatenate, extremes, insert, joinAttempts, legendValue, mean, overSteps, overTime, pointCount, smooth, toCsv, type Points,
} from "./series.ts";

const points = (pairs: [number, number][], at = 0): Points => ({
  x: pairs.map(([x]) => x), y: pairs.map(([, y]) => y), at: pairs.map(([x]) => at + x * 10),
});

/** Buckets of `count` points each, whose extremes lie `spread` around the mean. */
const bucketed = (pairs: [number, number][], spread: number, count = 2, at = 0): Points => ({
  ...points(pairs, at),
  buckets: { low: pairs.map(([, y]) => y - spread), high: pairs.map(([, y]) => y + spread), count: pairs.map(() => count) },
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

test("a line in buckets has the exact extremes, the count and the mean of all of its points", () => {
  const line: Points = { ...points([[10, 1], [20, 4]]), buckets: { low: [-3, 4], high: [2, 4], count: [9, 1] } };
  assert.deepEqual(extremes(line), { min: -3, max: 4 });
  assert.equal(pointCount(line), 10);
  assert.equal(mean(line), 1.3);
  assert.deepEqual(extremes(points([[1, 5], [2, 6]])), { min: 5, max: 6 });
  assert.equal(mean(points([[1, 5], [2, 6]])), 5.5);
  assert.equal(extremes(points([])), null);
  assert.equal(mean(points([])), null);
});

test("a live point after buckets is a bucket of its own", () => {
  const line = bucketed([[10, 1]], 5);
  insert(line, 11, 3, 110);
  assert.deepEqual(line.buckets, { low: [-4, 3], high: [6, 3], count: [2, 1] });
  assert.deepEqual(concatenate([bucketed([[10, 1]], 5), points([[11, 3]])]).buckets, line.buckets);
});

test("a resumed attempt replaces whole buckets, and keeps the others", () => {
  const joined = joinAttempts([bucketed([[10, 1], [20, 2]], 5), points([[15, 7]])]);
  assert.deepEqual([joined.x, joined.y], [[10, 15], [1, 7]]);
  assert.deepEqual(joined.buckets, { low: [-4, 7], high: [6, 7], count: [2, 1] });
});

test("buckets that meet at one x on another axis keep the extremes of both", () => {
  const meeting = { ...bucketed([[1, 4], [2, 6]], 3), at: [100, 100] };
  assert.deepEqual(overTime(meeting, 90), { x: [10], y: [4], at: [100], buckets: { low: [1], high: [9], count: [4] } });
  const steps: Points = { x: [1, 2], y: [0, 0], at: [10, 20] };
  const after = overSteps({ ...bucketed([[1, 4], [2, 6]], 3), at: [25, 30] }, steps);
  assert.deepEqual(after, { x: [2], y: [6], at: [30], buckets: { low: [1], high: [9], count: [4] } });
});

test("a CSV of buckets says their extremes and how many points they hold", () => {
  assert.equal(toCsv("step", [{ label: "mean", points: bucketed([[10, 1]], 2, 5) }]), 'step,"mean","mean min","mean max","mean points"\n10,1,-1,3,5\n');
});
