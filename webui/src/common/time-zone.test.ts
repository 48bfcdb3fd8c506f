import assert from "node:assert/strict";
import { test } from "vitest";

import { moment } from "./format.ts";
import { chosenTimeZone, isTimeZone, timeZones } from "./time-zone.ts";

test("a zone that does not exist is none", () => {
  assert.equal(isTimeZone("Europe/Berlin"), true);
  assert.equal(isTimeZone("Europe/Nowhere"), false);
  assert.equal(chosenTimeZone(), undefined, "without a browser there is no choice");
});

test("UTC is the first of the zones, and each stands there once", () => {
  const zones = timeZones();
  assert.equal(zones[0], "UTC");
  assert.equal(new Set(zones).size, zones.length);
});

test("a time is shown in the zone that is asked for", () => {
  assert.equal(moment("2026-01-31T23:30:00Z", "Asia/Tokyo"), "1 Feb 2026, 08:30:00");
  assert.equal(moment("2026-01-31T23:30:00Z", "UTC"), "31 Jan 2026, 23:30:00");
});
