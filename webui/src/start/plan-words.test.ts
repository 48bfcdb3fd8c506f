import assert from "node:assert/strict";
import { test } from "vitest";

import { jobTexts, otherJobsText, slotsText, startText, timeText, waitText, workText } from "./plan-words.ts";

const PLACEMENT = { starts_now: false, code: "capacity" as const, message: "2 slots must become free", position: 3, queue_length: 4, ahead: [], start: { p50: null, p90: null, source: "unknown" as const, message: "" } };

test("jobs of the same size are one line, and those without a slot are named apart", () => {
  const jobs = [
    { name: "controller", kind: "controller", slots: 0 }, { name: "reward", kind: "reward", slots: 0 }, { name: "trainer", kind: "trainer", slots: 2 },
    { name: "rollout-0", kind: "rollout", slots: 1 }, { name: "rollout-1", kind: "rollout", slots: 1 },
  ];
  assert.deepEqual(jobTexts({ jobs }), ["Trainer: 2 slots", "2 engines: 1 slot each"]);
  assert.equal(otherJobsText({ jobs }), "controller, reward service");
  assert.deepEqual([slotsText({ slots_needed: 4 }), slotsText({ slots_needed: 1 }), slotsText({ slots_needed: 0 })], ["4 slots", "1 slot", "No slot"]);
});

test("a wait has its reason and its position", () => {
  assert.equal(waitText({ placement: PLACEMENT }), "Position 3 of 4 in the queue. 2 slots must become free.");
  assert.equal(waitText({ placement: { ...PLACEMENT, position: null } }), "2 slots must become free.");
  assert.equal(waitText({ placement: { ...PLACEMENT, starts_now: true } }), "Starts at once: its slots are free.");
});

test("the work is groups and tokens, and a run without groups has none", () => {
  assert.equal(workText({ groups: 1600, tokens: { generated_at_most: 14_680_064 } }), "Trains on 1,600 groups, at most 14.7m generated tokens.");
  assert.equal(workText({ groups: null, tokens: { generated_at_most: null } }), null);
});

test("an estimate of time says what it rests on, and its absence why", () => {
  assert.equal(timeText({ time: { seconds: 7800, seconds_p90: null, gpu_hours: 4.3333, from_runs: 3 } }), "About 2 h 10 min, 4.33 slot-hours: the median of the 3 newest runs of this shape.");
  assert.equal(timeText({ time: { seconds: 60, seconds_p90: 90, gpu_hours: 0.03, from_runs: 1 } }), "About 1 min 00 s (90 % take less than 1 min 30 s), 0.03 slot-hours: as the newest run of this shape took.");
  assert.match(timeText({ time: { seconds: null, seconds_p90: null, gpu_hours: null, from_runs: 0 } }), /^Not known: no run/);
});

test("a forecast of the start is said only while the run would wait and something is known", () => {
  const at = (changes: object) => startText({ placement: { ...PLACEMENT, start: { ...PLACEMENT.start, ...changes } } });
  assert.equal(at({}), null);
  assert.match(at({ p50: "2026-01-01T12:00:00Z", p90: "2026-01-01T13:00:00Z" })!, /^Starts around .+, with 90 % probability before .+\.$/);
  assert.match(at({ p90: "2026-01-01T13:00:00Z" })!, /^Starts by .+ at the latest\.$/);
  assert.equal(startText({ placement: { ...PLACEMENT, starts_now: true, start: { ...PLACEMENT.start, p50: "2026-01-01T12:00:00Z" } } }), null);
});
