import assert from "node:assert/strict";
import { test } from "vitest";

import { funnelOf } from "./ledger-funnel.ts";
import { matchingCharts, outcomeOf, sectionsOf } from "./live-sections.ts";
import { DPO_CHARTS, otherCharts, RL_CHARTS, SFT_CHARTS, sourceCharts } from "./run-charts.ts";

test("outcome first, and every other planned chart is in exactly one section", () => {
  assert.deepEqual(outcomeOf(RL_CHARTS).map(({ id }) => id), ["reward", "staleness"]);
  const planned = [...RL_CHARTS, ...sourceCharts(["math"])];
  const placed = [...outcomeOf(planned), ...sectionsOf(planned, []).flatMap(({ plans }) => plans)].map(({ id }) => id);
  assert.deepEqual([...placed].sort(), planned.map(({ id }) => id).sort());
  assert.equal(sectionsOf(planned, []).some(({ id }) => id === "others"), false); // each has a topic
  assert.deepEqual(sectionsOf(SFT_CHARTS, []).map(({ id }) => id), ["optimization"]);
  assert.deepEqual(outcomeOf(DPO_CHARTS).map(({ id }) => id), ["dpo-loss", "dpo-accuracy"]);
  assert.deepEqual(sectionsOf(DPO_CHARTS, []).map(({ id }) => id), ["speed", "optimization"]);
});

test("a search over all metrics matches titles, labels and metric keys", () => {
  const all = [...RL_CHARTS, ...otherCharts(["gate/stalls"], RL_CHARTS)];
  assert.deepEqual(matchingCharts(all, "GATE stall").map(({ id }) => id), ["gate/stalls"]);
  assert.ok(matchingCharts(all, "staleness/p95").some(({ id }) => id === "staleness"));
  assert.deepEqual(matchingCharts(all, "  "), []);
});

test("the funnel accounts for every sampled group", () => {
  const stages = funnelOf({ drawn: 100, waiting: 1, running: 9, buffered: 5, taken: 8, trained: 70, dropped: { stale: 4, error: 3 } })!;
  assert.deepEqual(stages.map(({ count }) => count), [100, 93, 83, 78, 70]);
  for (const [index, stage] of stages.slice(1).entries()) {
    assert.equal(stages[index]!.count - stage.lost.reduce((total, { count }) => total + count, 0), stage.count, stage.name);
  }
  assert.equal(funnelOf({ drawn: 0 }), null);
});
