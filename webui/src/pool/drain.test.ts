import assert from "node:assert/strict";
import { test } from "vitest";

import type { LeavingRun } from "../api/schema.d.ts";
import { deadlineText, drainBody, isDrained, leavingFrom, MAX_AMOUNT, stageText, UNIT_SECONDS, type Unit } from "./drain.ts";

const NOW = Date.parse("2026-01-01T12:00:00Z");
const run = (node: string, stage: LeavingRun["stage"]): LeavingRun => ({ node: { id: node, name: node }, run_id: "run_1", run_name: "a run", stage });

test("a drain without an amount has no deadline, and one with an amount has it in seconds", () => {
  assert.deepEqual(drainBody("", "hours"), {});
  assert.deepEqual(drainBody(30, "minutes"), { deadline_seconds: 1_800 });
  assert.deepEqual(drainBody("1.5", "hours"), { deadline_seconds: 5_400 });
  assert.deepEqual(drainBody(2, "days"), { deadline_seconds: 172_800 });
});

test("the largest amount is the same time in each unit", () => {
  for (const unit of Object.keys(UNIT_SECONDS) as Unit[]) assert.equal(MAX_AMOUNT[unit] * UNIT_SECONDS[unit], 30 * 86_400);
});

test("a node is drained by its status, its deadline or a run that leaves it", () => {
  const node = { id: "a", status: "READY" as const, drain_deadline: null };
  assert.equal(isDrained(node, [run("b", "stopping")]), false);
  assert.equal(isDrained({ ...node, status: "DRAINED" }, []), true);
  assert.equal(isDrained({ ...node, status: "UNRESPONSIVE", drain_deadline: "2026-01-01T12:00:00Z" }, []), true);
  assert.equal(isDrained({ ...node, status: "UNRESPONSIVE" }, [run("a", "stopping")]), true);
});

test("only runs of the node are listed, each with what it does", () => {
  const leaving = [run("a", "staying"), run("b", "stopping"), run("a", "uploading")];
  assert.deepEqual(leavingFrom({ id: "a" }, leaving).map(stageText), ["may finish until the deadline", "uploads its checkpoint"]);
});

test("the deadline is shown as time left", () => {
  const after = (minutes: number) => new Date(NOW + minutes * 60_000).toISOString();
  assert.equal(deadlineText(null, NOW), "no deadline");
  assert.equal(deadlineText(after(0.2), NOW), "jobs that are left are stopped in 1 min");
  assert.equal(deadlineText(after(120.1), NOW), "jobs that are left are stopped in 2 h");
  assert.equal(deadlineText(after(90), NOW), "jobs that are left are stopped in 1 h 30 min");
  assert.equal(deadlineText(after(120), NOW), "jobs that are left are stopped in 2 h");
  assert.equal(deadlineText(after(3 * 1440 + 60), NOW), "jobs that are left are stopped in 3 d 1 h");
  assert.match(deadlineText(after(0), NOW), /has passed/);
});
