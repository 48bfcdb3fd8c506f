import assert from "node:assert/strict";
import { test } from "vitest";

import { alignColumns, bandPairs, hasFewValues, isCrowded, plotColumns } from "./columns.ts";
import { smooth } from "./series.ts";

const single = { points: { x: [1, 2], y: [0, 4], at: [1, 2] } };
const bucketed = { points: { ...single.points, buckets: { low: [-1, 3], high: [1, 5], count: [2, 2] } } };

test("a line of single points has no band, and is smoothed unless it is exact", () => {
  assert.deepEqual(plotColumns([single], 0.5).map(({ role }) => role), ["raw", "smoothed"]);
  assert.deepEqual(plotColumns([single], 0.5)[1]!.values, smooth([0, 4], 0.5));
  assert.deepEqual(plotColumns([{ ...single, exact: true }], 0.5)[1]!.values, [0, 4]);
});

test("the band of a line in buckets is drawn first and never smoothed", () => {
  const columns = plotColumns([single, bucketed], 0.9);
  assert.deepEqual(columns.map(({ line, role }) => [line, role]), [[0, "raw"], [0, "smoothed"], [1, "low"], [1, "high"], [1, "raw"], [1, "smoothed"]]);
  assert.deepEqual([columns[2]!.values, columns[3]!.values], [[-1, 3], [1, 5]]);
  assert.deepEqual(bandPairs(columns), [{ series: [4, 3] }]);
});

test("lines with other x values are aligned over all of them", () => {
  const lines = [{ points: { x: [1, 3], y: [10, 30], at: [1, 3] } }, { points: { x: [2, 3, 4], y: [2, 3, 4], at: [2, 3, 4] } }];
  const columns = lines.map(({ points }, line) => ({ line, role: "raw" as const, values: points.y }));
  assert.deepEqual(alignColumns(lines, columns).map((column) => Array.from(column)), [[1, 2, 3, 4], [10, undefined, 30, undefined], [undefined, 2, 3, 4]]);
  assert.deepEqual(alignColumns([], []), [[]]);
});

test("a column with gaps has few values until it has three", () => {
  assert.equal(hasFewValues([1, undefined, null, 2]), true);
  assert.equal(hasFewValues([1, undefined, 0, 2]), false);
});

test("a chart is crowded by the points that are shown, not by those outside the zoom", () => {
  assert.equal(isCrowded(20, [0, 999], 400), true);
  assert.equal(isCrowded(20, [900, 999], 400), false);
});

test("lines that end at different points of the same x values share them", () => {
  const [long, short] = [{ points: { x: [1, 2, 3], y: [7, 8, 9], at: [1, 2, 3] } }, { points: { x: [1, 2], y: [5, 6], at: [1, 2] } }];
  const [xs, first, , second] = alignColumns([long, short], plotColumns([long, short], 0));
  assert.equal(xs, long.points.x);
  assert.deepEqual([first, [...second!]], [[7, 8, 9], [5, 6, undefined]]);
});
