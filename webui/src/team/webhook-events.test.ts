import assert from "node:assert/strict";
import { test } from "vitest";

import type { Delivery, Webhook } from "../api/schema.d.ts";
import { EVENT_GROUPS, EVENTS, isChosen, lastAnswer, toggleArea, toggleEvent, webhookState } from "./webhook-events.ts";

const runs = EVENT_GROUPS.find(({ area }) => area === "run")!;

test("every event belongs to one group", () => {
  assert.deepEqual(EVENT_GROUPS.flatMap(({ events }) => events).sort(), Object.keys(EVENTS).sort());
});

test("a pattern chooses each of its events", () => {
  assert.equal(isChosen(["run.*"], "run.failed"), true);
  assert.equal(isChosen(["*"], "node.lost"), true);
  assert.equal(isChosen(["run.*"], "alert.fired"), false);
});

test("an event taken out of an area leaves the others", () => {
  const left = toggleEvent(["run.*", "alert.fired"], "run.queued");
  assert.equal(left.includes("run.*"), false);
  assert.equal(left.includes("run.queued"), false);
  assert.equal(left.includes("run.failed"), true);
  assert.equal(left.includes("alert.fired"), true);
  assert.deepEqual(toggleEvent(left, "run.queued"), ["run.*", "alert.fired"], "put back, the area is whole again");
});

test("a click on an area chooses all of it, or none", () => {
  assert.deepEqual(toggleArea(["run.failed"], runs), ["run.*"]);
  assert.deepEqual(toggleArea(["run.*", "node.lost"], runs), ["node.lost"]);
});

test("a webhook that is on but fails is marked", () => {
  const hook = { enabled: true, failing_since: null } as Webhook;
  assert.equal(webhookState(hook), "ON");
  assert.equal(webhookState({ ...hook, failing_since: "2026-01-01T00:00:00Z" }), "FAILING");
  assert.equal(webhookState({ ...hook, enabled: false }), "OFF");
});

test("the last answer of a delivery is its status, or that there was none", () => {
  const delivery = (log: Partial<Delivery["log"][number]>[]) => ({ log }) as Delivery;
  assert.equal(lastAnswer(delivery([])), "–");
  assert.equal(lastAnswer(delivery([{ status: null }, { status: 204 }])), "204");
  assert.equal(lastAnswer(delivery([{ status: 204 }, { status: null }])), "no answer");
});
