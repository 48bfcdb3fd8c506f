import assert from "node:assert/strict";
import { test } from "vitest";

import { cumulative, newestOf, overReference } from "./axes.ts";
import { nearest } from "./readout.ts";
import { RedrawQueue } from "./redraw-queue.ts";
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

test("redraws beyond the budget of a frame wait for the next, each once and in their order", () => {
  const frames: (() => void)[] = [];
  let now = 0;
  const drawn: string[] = [];
  const queue = new RedrawQueue((then) => void frames.push(then), () => now, { budgetMilliseconds: 8, restMilliseconds: 0 });
  const draw = Object.fromEntries(["a", "b", "c"].map((name) => [name, () => { drawn.push(name); now += 5; }]));
  queue.add(draw["a"]!);
  queue.add(draw["b"]!);
  queue.add(draw["a"]!);
  const withdraw = queue.add(draw["c"]!);
  frames.shift()!();
  assert.deepEqual(drawn, ["a", "b"]);
  withdraw();
  frames.shift()!();
  assert.deepEqual([drawn.length, frames.length], [2, 0]);
});

test("a redraw rests after it was done, while others go on", () => {
  const frames: (() => void)[] = [];
  let now = 0;
  const drawn: string[] = [];
  const queue = new RedrawQueue((then) => void frames.push(then), () => now, { budgetMilliseconds: 8, restMilliseconds: 100 });
  const [a, b] = ["a", "b"].map((name) => () => void drawn.push(name));
  queue.add(a!);
  frames.shift()!();
  queue.add(a!);
  queue.add(b!);
  now = 99;
  frames.shift()!();
  assert.deepEqual(drawn, ["a", "b"]);
  now = 100;
  frames.shift()!();
  assert.deepEqual(drawn, ["a", "b", "a"]);
});
