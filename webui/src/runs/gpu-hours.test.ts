import assert from "node:assert/strict";
import { test } from "vitest";

import { gpuHoursAt, slotUses } from "./gpu-hours.ts";

const at = (hour: number) => Date.UTC(2026, 0, 1, hour) / 1000;
const job = (slots: string[], from: number | null, to: number | null) => ({
  slots, node: { id: "node_1", name: "n" }, started_at: from === null ? null : new Date(at(from) * 1000).toISOString(), ended_at: to === null ? null : new Date(at(to) * 1000).toISOString(),
});

test("each slot counts from the start of its job to the end", () => {
  const uses = slotUses([job(["a", "b"], 0, 2), job(["c"], 1, null), job([], 0, null), job(["d"], null, null)]);
  assert.deepEqual([0, 1, 2, 4].map((hour) => gpuHoursAt(uses, at(hour))), [0, 2, 5, 7]);
});

test("jobs that share a slot hold it once, and the time between two attempts does not count", () => {
  const uses = slotUses([job(["a"], 0, 2), job(["a"], 1, 3), job(["a"], 5, 6)]);
  assert.deepEqual([2, 4, 6].map((hour) => gpuHoursAt(uses, at(hour))), [2, 3, 4]);
});
