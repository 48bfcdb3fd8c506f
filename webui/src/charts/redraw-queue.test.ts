import assert from "node:assert/strict";
import { test } from "vitest";

import { RedrawQueue } from "./redraw-queue.ts";

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
  now = 16;
  frames.shift()!(); // looks at how long the frame took
  queue.add(a!);
  queue.add(b!);
  now = 99;
  frames.shift()!();
  assert.deepEqual(drawn, ["a", "b"]);
  now = 100;
  frames.shift()!();
  assert.deepEqual(drawn, ["a", "b", "a"]);
});

test("after a late frame, redraws pause until fifty frames in a second are made up for", () => {
  const frames: (() => void)[] = [];
  let now = 0;
  let drawn = 0;
  const queue = new RedrawQueue((then) => void frames.push(then), () => now, { budgetMilliseconds: 8, restMilliseconds: 0 });
  const draw = () => { drawn += 1; };
  queue.add(draw);
  frames.shift()!();
  queue.add(draw);
  now = 60; // 40 late
  frames.shift()!();
  now = 259;
  frames.shift()!();
  assert.equal(drawn, 1);
  now = 260;
  frames.shift()!();
  assert.equal(drawn, 2);
  now = 9000; // the tab was in the background: the pause is a second at most
  queue.add(draw);
  frames.shift()!();
  now = 10_000;
  frames.shift()!();
  assert.deepEqual([drawn, frames.length], [3, 1]);
});
