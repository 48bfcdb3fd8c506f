import assert from "node:assert/strict";
import { test } from "vitest";

import { MetricsStore } from "./metrics-store.ts";

function store() {
  const scheduled: (() => void)[] = [];
  const metrics = new MetricsStore((then) => void scheduled.push(then));
  return { metrics, settle: () => scheduled.splice(0).forEach((then) => then()) };
}

const series = (attempt: number, x: number[], value: number[]) =>
  ({ name: "reward/mean", unit: "", axis: "step", source: "", attempt, x, value, at: x.map((step) => attempt * 1_000 + step) });

test("frames extend the fetched series without duplicates", () => {
  const { metrics } = store();
  metrics.replace([series(1, [1, 2], [0.1, 0.2])]);
  metrics.add({ axis: "step", x: 3, attempt: 1, values: { "reward/mean": 0.3, "loss/policy": 1 } }, 1_003);
  metrics.add({ axis: "step", x: 3, attempt: 1, values: { "reward/mean": 0.3 } }, 1_003);
  assert.deepEqual(metrics.lines("reward/mean")[0]?.points.y, [0.1, 0.2, 0.3]);
  assert.deepEqual(metrics.names(), ["loss/policy", "reward/mean"]);
});

test("many frames trigger one notification", () => {
  const { metrics, settle } = store();
  let notifications = 0;
  metrics.subscribe(() => { notifications += 1; });
  for (let x = 1; x <= 50; x += 1) metrics.add({ axis: "step", x, attempt: 1, values: { "reward/mean": x } }, x);
  settle();
  assert.equal(notifications, 1);
});

test("steps of a second attempt replace the steps that it repeats", () => {
  const { metrics } = store();
  metrics.replace([series(2, [2, 3], [20, 30]), series(1, [1, 2], [1, 2])]);
  assert.deepEqual(metrics.lines("reward/mean")[0]?.points.y, [1, 20, 30]);
});

test("each source is a separate line", () => {
  const { metrics } = store();
  metrics.add({ axis: "time", x: 4, attempt: 1, source: "rollout-1", values: { "engine/version": 2 } }, 4);
  metrics.add({ axis: "time", x: 4, attempt: 1, source: "rollout-0", values: { "engine/version": 3 } }, 4);
  assert.deepEqual(metrics.lines("engine/version").map((line) => line.source), ["rollout-0", "rollout-1"]);
});

test("a restarted engine continues its line, and a step reported twice is one line", () => {
  const { metrics } = store();
  metrics.add({ axis: "time", x: 4, attempt: 1, source: "rollout-0/engine", values: { "engine/version": 2 } }, 4);
  metrics.add({ axis: "time", x: 9, attempt: 1, source: "rollout-0#1/engine", values: { "engine/version": 3 } }, 9);
  metrics.add({ axis: "step", x: 1, attempt: 1, source: "controller", values: { "staleness/mean": 1 } }, 4);
  metrics.add({ axis: "step", x: 1, attempt: 1, source: "trainer", values: { "staleness/mean": 1 } }, 5);
  assert.deepEqual(metrics.lines("engine/version").map((line) => [line.source, line.points.y]), [["rollout-0/engine", [2, 3]]]);
  assert.deepEqual(metrics.lines("staleness/mean").map((line) => line.source), ["trainer"]);
});

test("a series in buckets keeps the server's extremes, and counts finite points alone", () => {
  const { metrics } = store();
  const long = { ...series(1, [10, 20, 30], [1, 2, 3]), value: [1, null, 3], min: [-5, null, 2], max: [7, null, 4], count: [10, 10, 10], nonfinite: [0, 10, 4] };
  metrics.replace([long]);
  metrics.add({ axis: "step", x: 31, attempt: 1, values: { "reward/mean": 9 } }, 1_031);
  const [line] = metrics.lines("reward/mean");
  assert.deepEqual([line!.points.x, line!.points.y], [[10, 30, 31], [1, 3, 9]]);
  assert.deepEqual(line!.points.buckets, { low: [-5, 2, 9], high: [7, 4, 9], count: [10, 6, 1] });
});

test("metrics that are fetched later keep the newer points of the stream", () => {
  const { metrics } = store();
  metrics.add({ axis: "step", x: 2, attempt: 1, values: { "reward/mean": 0.2 } }, 1_002);
  metrics.add({ axis: "step", x: 3, attempt: 1, values: { "reward/mean": 0.3, "loss/policy": 1 } }, 1_003);
  metrics.merge([series(1, [1, 2], [0.1, 0.2])]);
  assert.deepEqual(metrics.lines("reward/mean")[0]?.points, { x: [1, 2, 3], y: [0.1, 0.2, 0.3], at: [1_001, 1_002, 1_003] });
  assert.deepEqual(metrics.names(), ["loss/policy", "reward/mean"]);
});
