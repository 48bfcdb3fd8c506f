import assert from "node:assert/strict";
import { test } from "vitest";

import { isBooting, secondsOf, showsBoot, showsPhase } from "./boot.ts";

const boot = (done: boolean, ...states: ("done" | "active" | "failed" | "waiting")[]) => ({
  attempt_number: 1,
  done,
  stages: states.map((state) => ({ name: "engine" as const, title: "Engine", state, started_at: null, ended_at: null, detail: "" })),
});

test("a run boots until its first step, unless it ended or is paused", () => {
  assert.equal(isBooting({ status: "RUNNING", boot: boot(false, "done", "active") }), true);
  assert.equal(isBooting({ status: "RUNNING", boot: boot(true, "done", "done") }), false);
  assert.equal(isBooting({ status: "STOPPED", boot: boot(false, "done", "waiting") }), false);
  assert.equal(isBooting({ status: "PAUSED", boot: boot(false, "done", "waiting") }), false);
  assert.equal(isBooting({ status: "DRAFT", boot: null }), false);
});

test("a failed boot stays visible", () => {
  assert.equal(showsBoot({ status: "FAILED", boot: boot(false, "done", "failed") }), true);
  assert.equal(showsBoot({ status: "SUCCEEDED", boot: boot(true, "done", "done") }), false);
});

test("an active stage has its time so far, and an interrupted stage has none", () => {
  const startedAt = "2026-01-01T00:00:00.000Z";
  const now = Date.parse(startedAt) + 90_000;
  assert.equal(secondsOf({ state: "done", started_at: startedAt, ended_at: "2026-01-01T00:01:00.000Z" }, now), 60);
  assert.equal(secondsOf({ state: "active", started_at: startedAt, ended_at: null }, now), 90);
  assert.equal(secondsOf({ state: "failed", started_at: startedAt, ended_at: null }, now), null);
  assert.equal(secondsOf({ state: "waiting", started_at: null, ended_at: null }, now), null);
});

test("the head of the page shows a warm start, and leaves what loads to the checklist", () => {
  const at = (phase: string) => ({ status: "RUNNING" as const, progress: { phase, done: 0, total: 1, message: "rollout-0" } });
  assert.equal(showsPhase(at("warm_start")), true);
  assert.equal(showsPhase(at("boot")), false);
  assert.equal(showsPhase(at("train")), false);
  assert.equal(showsPhase({ ...at("warm_start"), status: "STOPPED" }), false);
  assert.equal(showsPhase({ status: "RUNNING", progress: null }), false);
});
