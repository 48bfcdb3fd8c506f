import assert from "node:assert/strict";
import { test } from "vitest";

import type { Span } from "../../api/schema.d.ts";
import { axisLabel, boxOf, coverage, describe, fetchWindow, hitTest, LABEL_WIDTH, layoutLanes, ticks, timeToX, VERSION_STRIP_HEIGHT, xToTime, zoomAround } from "./layout.ts";

function span(start: number, end: number, fields: Partial<Span> = {}): Span {
  return { lane: "rollout-0", attempt: 1, kind: "generate", start, end, version: 1, group_id: "g", member: 0, outcome: "finished", ...fields };
}

const WIDTH = LABEL_WIDTH + 100;
const VIEW = { from: 0, to: 10 };

test("the segments of one trajectory share a row, and overlapping trajectories do not", () => {
  const [lane] = layoutLanes(["rollout-0"], [
    span(0, 2, { outcome: "interrupted" }),
    span(1, 5, { member: 1 }),
    span(3, 4, { version: 2 }),
    span(5, 6, { member: 2 }),
  ]);
  assert.deepEqual(lane!.bars.map((bar) => [bar.span.member, bar.span.version, bar.row]), [[0, 1, 0], [0, 2, 0], [1, 1, 1], [2, 1, 0]]);
});

test("a lane knows from when to when it generates with each version", () => {
  const [lane] = layoutLanes([], [span(0, 2), span(1, 3, { member: 1 }), span(4, 5, { version: 2 })]);
  assert.deepEqual(lane!.versions, [{ version: 1, start: 0, end: 3 }, { version: 2, start: 4, end: 5 }]);
});

test("engines without spans keep their lane, and lanes do not overlap", () => {
  const lanes = layoutLanes(["rollout-0", "rollout-1", "trainer"], [span(0, 1)]);
  assert.deepEqual(lanes.map((lane) => lane.name), ["rollout-0", "rollout-1", "trainer"]);
  for (const [index, lane] of lanes.entries()) if (index > 0) assert.ok(lane.top >= lanes[index - 1]!.top + lanes[index - 1]!.height);
});

test("bars are clipped to the plot and stay at least a pixel wide", () => {
  const [lane] = layoutLanes([], [span(-5, 1), span(2, 2.0001, { member: 1 }), span(9, 20, { member: 2 })]);
  const boxes = lane!.bars.map((bar) => boxOf(bar, lane!, VIEW, WIDTH));
  assert.equal(boxes[0]!.left, LABEL_WIDTH);
  assert.equal(boxes[0]!.width, 10);
  assert.equal(boxes[1]!.width, 1);
  assert.equal(boxes[2]!.left + boxes[2]!.width, WIDTH);
});

test("a hit on a generation wins over the load behind it, and the labels hit nothing", () => {
  const [lane] = layoutLanes([], [span(0, 10, { kind: "load", group_id: "", member: null }), span(2, 4)]);
  const at = (x: number) => hitTest([lane!], VIEW, WIDTH, x, lane!.top + VERSION_STRIP_HEIGHT + 3)?.span.kind ?? null;
  assert.equal(at(LABEL_WIDTH + 30), "generate");
  assert.equal(at(LABEL_WIDTH + 80), "load");
  assert.equal(at(LABEL_WIDTH - 5), null);
  assert.equal(hitTest([lane!], VIEW, WIDTH, LABEL_WIDTH + 30, lane!.top - 5), null);
});

test("the time under the cursor stays while one zooms", () => {
  const at = xToTime(LABEL_WIDTH + 30, VIEW, WIDTH);
  const zoomed = zoomAround(VIEW, at, 0.5);
  assert.equal(zoomed.to - zoomed.from, 5);
  assert.ok(Math.abs(timeToX(at, zoomed, WIDTH) - (LABEL_WIDTH + 30)) < 1e-9);
});

test("the fetched window holds the view and does not change with a small pan", () => {
  const window = fetchWindow({ from: 100.5, to: 107.5 });
  assert.ok(window.from <= 100.5 && window.to >= 107.5);
  assert.deepEqual(fetchWindow({ from: 100.9, to: 107.9 }), window);
});

test("ticks count from the begin of the timeline", () => {
  assert.deepEqual(ticks({ from: 1003, to: 1026 }, 1000, 5), [1005, 1010, 1015, 1020, 1025]);
  assert.deepEqual([4.25, 185.5, 3725].map(axisLabel), ["4.25 s", "3:05.5", "1:02:05"]);
});

test("overlapping spans of a kind count once", () => {
  const [lane] = layoutLanes([], [span(0, 4), span(2, 5, { member: 1 }), span(8, 20, { member: 2 })]);
  assert.equal(coverage(lane!, "generate", VIEW), 0.7);
});

test("a span reads as a sentence", () => {
  assert.equal(
    describe(span(12, 13.5, { outcome: "interrupted", version: 4, member: 3 }), 10),
    "rollout-0: group g, member 3 generates with version 4 for 1.50 s, then interrupted (at 2 s)",
  );
});
