import assert from "node:assert/strict";
import { test } from "vitest";

import type { LogFile } from "../api/schema.d.ts";
import { faultText, isFailure, lastLines, lastTraceback, logOfFailure } from "./failure.ts";

const file = (name: string, attempt = 1) => ({ job: `${name}-of-${attempt}`, name, attempt, incarnation: 0, bytes: 10 }) as LogFile;

test("a pause because of an error is a failure, and one on request is not", () => {
  assert.equal(isFailure({ status: "FAILED", conditions: [] }), true);
  assert.equal(isFailure({ status: "PAUSED", conditions: ["NEEDS_ATTENTION"] }), true);
  assert.equal(isFailure({ status: "PAUSED", conditions: [] }), false);
});

test("the log is that of the job that the reason blames, in the newest attempt", () => {
  const files = [file("reward"), file("trainer"), file("reward", 2), file("trainer", 2), file("rollout-0", 2)];
  assert.equal(logOfFailure({ reason: "reward_error_rate", fault: "reward" }, files, [])?.job, "reward-of-2");
  assert.equal(logOfFailure({ reason: "rollout_crash_loop", fault: "user" }, files, [])?.job, "rollout-0-of-2");
  assert.equal(logOfFailure({ reason: "config_rejected", fault: "config" }, files, [{ id: "rollout-0-of-2", exit_code: 3 }])?.job, "rollout-0-of-2");
  assert.equal(logOfFailure({ reason: "config_rejected", fault: "config" }, files, [])?.job, "trainer-of-2");
  assert.equal(logOfFailure({ reason: "node_lost", fault: "infra" }, [], []), undefined);
});

test("the last traceback ends with its exception, whatever follows", () => {
  const text = "Traceback (most recent call last):\n  old\nKeyError: 'a'\nstep 4\nTraceback (most recent call last):\n  File \"r.py\", line 3\n    x()\nValueError: no box\nshutting down\n";
  assert.equal(lastTraceback(text), 'Traceback (most recent call last):\n  File "r.py", line 3\n    x()\nValueError: no box');
  assert.equal(lastTraceback("step 1\n"), null);
  assert.equal(lastTraceback("Traceback (most recent call last):\n  cut"), "Traceback (most recent call last):\n  cut");
});

test("the last lines are those with text", () => {
  assert.deepEqual(lastLines("a\n\nb\nc\n\n", 2), ["b", "c"]);
});

test("a fault has words, and none has none", () => {
  assert.match(faultText("infra") ?? "", /uses up no attempt/);
  assert.equal(faultText("none"), null);
});
