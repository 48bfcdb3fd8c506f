import assert from "node:assert/strict";
import { test } from "vitest";

import { endsSoon, expiresAt, expiryText, lifetimes } from "./expiry.ts";

const now = Date.parse("2026-01-01T00:00:00Z");
const inHours = (hours: number) => new Date(now + hours * 3_600_000).toISOString();

test("an end is shown by its distance, and one that passed is expired", () => {
  assert.equal(expiryText(null, now), "never");
  assert.equal(expiryText(inHours(0.2), now), "in 12 min");
  assert.equal(expiryText(inHours(30), now), "in 30 h");
  assert.equal(expiryText(inHours(24 * 6), now), "in 6 d");
  assert.equal(expiryText(inHours(-1), now), "expired");
});

test("two weeks before the end it is marked", () => {
  assert.equal(endsSoon(inHours(24 * 13), now), true);
  assert.equal(endsSoon(inHours(24 * 15), now), false);
  assert.equal(endsSoon(null, now), false);
});

test("a choice of days is a time, and never is none", () => {
  assert.equal(expiresAt("7", now), "2026-01-08T00:00:00.000Z");
  assert.equal(expiresAt("never", now), null);
  assert.deepEqual(lifetimes([1, 30], true).map(({ label }) => label), ["in 1 day", "in 30 days", "never"]);
});
