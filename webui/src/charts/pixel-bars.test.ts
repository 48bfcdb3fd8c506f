import assert from "node:assert/strict";
import { test } from "vitest";

import { pixelBars as barsOf } from "./pixel-bars.ts";

const pixelBars = (x: number[], y: number[], columnPixels: number) => barsOf(Float64Array.from(x), Float64Array.from(y), columnPixels);

test("points in one column of pixels are one bar from the highest to the lowest", () => {
  assert.deepEqual(pixelBars([4.1, 4.5, 4.9], [10, 30, 20], 1), { columns: [4], tops: [10], bottoms: [30] });
});

test("neighboring bars touch, so that the line has no gap", () => {
  assert.deepEqual(pixelBars([0, 1, 2], [10, 50, 20], 1), { columns: [0, 1, 2], tops: [10, 10, 20], bottoms: [10, 50, 50] });
});

test("a line spans columns without a point along a straight line", () => {
  assert.deepEqual(pixelBars([0, 4], [0, 40], 1), { columns: [0, 1, 2, 3, 4], tops: [0, 0, 10, 20, 30], bottoms: [0, 10, 20, 30, 40] });
});

test("a column is as wide as a pixel of the page on a dense screen", () => {
  assert.deepEqual(pixelBars([0, 1, 2, 3], [5, 7, 9, 8], 2).columns, [0, 1]);
});

test("a missing value is left out, at the start too", () => {
  assert.deepEqual(pixelBars([0, 1, 2, 3], [NaN, 5, NaN, 5], 1), { columns: [1, 2, 3], tops: [5, 5, 5], bottoms: [5, 5, 5] });
  assert.deepEqual(pixelBars([0, 1], [NaN, NaN], 1).columns, []);
});
