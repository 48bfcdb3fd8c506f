import assert from "node:assert/strict";
import { test } from "vitest";

import type { UsageSeriesRow } from "../api/schema.d.ts";
import { axisTop, bucketOf, partsOf, sinceOf, slotTime, usageView, wastedShare } from "./usage-view.ts";

const named = (name: string, seconds: number[]): UsageSeriesRow => ({ name: { id: name, name }, team: null, slot_seconds: seconds, gpu_seconds: seconds, cost: seconds.map((value) => value / 10) });

test("an address that means nothing shows the default", () => {
  assert.deepEqual(usageView(new URLSearchParams("days=2&stack=color&by=&device=tpu")), { measure: "time", days: 30, stack: "outcome", by: "project", device: "" });
  assert.deepEqual(usageView(new URLSearchParams("days=7&stack=team&by=run&device=cuda")), { measure: "time", days: 7, stack: "team", by: "run", device: "cuda" });
});

test("a week has a bar per hour, a longer period one per day, and both begin at a full hour", () => {
  const view = usageView(new URLSearchParams("days=7"));
  assert.equal(bucketOf(view), "hour");
  assert.equal(bucketOf({ ...view, days: 30 }), "day");
  assert.equal(sinceOf(view, Date.parse("2026-11-25T12:34:56Z")), "2026-11-18T12:00:00.000Z");
});

test("names after the largest five are one part, and nothing is left out of the sum", () => {
  const series = [7, 6, 5, 4, 3, 2, 1].map((size) => named(`t${size}`, [size, 0]));
  const parts = partsOf(series, { stack: "team", measure: "time" }, (code) => code);
  assert.deepEqual(parts.map(({ label }) => label), ["t7", "t6", "t5", "t4", "t3", "2 more"]);
  assert.equal(parts.reduce((total, part) => total + part.total, 0), 28);
});

test("usage without a name says whose it is", () => {
  const other: UsageSeriesRow = { name: null, team: { id: "team_1", name: "blue" }, slot_seconds: [1], gpu_seconds: [1], cost: [1] };
  assert.equal(partsOf([other], { stack: "project", measure: "time" }, (code) => code)[0]?.label, "Other projects of blue");
  assert.equal(partsOf([{ ...other, team: null }], { stack: "team", measure: "time" }, (code) => code)[0]?.label, "Other teams");
});

test("the axis ends at a round time that no bar passes", () => {
  const top = (...bars: number[]) => axisTop(partsOf([named("a", bars)], { stack: "team", measure: "time" }, (code) => code), "time");
  assert.deepEqual([top(3600 * 4.2, 0), top(3600 * 130), top(72), top(1500), top(3)], [3600 * 6, 3600 * 200, 120, 2400, 4]);
  assert.equal(axisTop(partsOf([named("a", [123])], { stack: "team", measure: "cost" }, (code) => code), "cost"), 20);
  assert.ok(axisTop([], "time") > 0);
});

test("slot time has the unit that fits it", () => {
  assert.deepEqual([0, 9, 90, 5400, 36_000 * 3.5, 36_000_000].map(slotTime), ["0\u00a0h", "9\u00a0s", "1.5\u00a0min", "1.5\u00a0h", "35\u00a0h", "10,000\u00a0h"]);
});

test("the wasted share needs generated tokens", () => {
  const tokens = { generated: 200, trained: 150, dropped: { stale: 40 }, lost: 10, in_flight: 0, unknown: 0, wasted: 50 };
  assert.equal(wastedShare(tokens), 0.25);
  assert.equal(wastedShare({ ...tokens, generated: 0 }), null);
});
