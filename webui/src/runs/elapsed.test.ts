import assert from "node:assert/strict";
import { test } from "vitest";

import { elapsedSeconds } from "./elapsed.ts";

const at = (seconds: number) => new Date(seconds * 1000).toISOString();
const run = { status: "RUNNING" as const, status_at: at(100), started_at: at(100), ended_at: null, paused_seconds: 0 };

test("elapsed time grows while a run is active and stops when it ends", () => {
  assert.equal(elapsedSeconds(run, 160_000), 60);
  assert.equal(elapsedSeconds({ ...run, status: "STOPPED", ended_at: at(130) }, 160_000), 30);
  assert.equal(elapsedSeconds({ ...run, started_at: null }, 160_000), null);
});

test("time in a pause does not count", () => {
  assert.equal(elapsedSeconds({ ...run, status: "PAUSED", status_at: at(140) }, 900_000), 40);
  assert.equal(elapsedSeconds({ ...run, paused_seconds: 700 }, 900_000), 100);
});
