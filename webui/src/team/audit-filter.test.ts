import assert from "node:assert/strict";
import { test } from "vitest";

import { auditFilter, inputToIso, isFiltered, withFilter } from "./audit-filter.ts";

const now = Date.parse("2026-01-10T12:34:56Z");
const filterOf = (text: string) => auditFilter(new URLSearchParams(text), now);

test("the filters of the URL are those of the API, and empty ones are none", () => {
  assert.deepEqual(filterOf("tab=audit&actor=alice&action=run.*&target=&other=1"), { actor: "alice", action: "run.*" });
  assert.equal(isFiltered(filterOf("tab=audit")), false);
});

test("a period counts back from now, to the minute", () => {
  assert.deepEqual(filterOf("period=24h"), { since: "2026-01-09T12:34:00.000Z" });
  assert.deepEqual(filterOf("period=forever"), {});
});

test("a custom time is in the browser's zone, and nonsense is left out", () => {
  assert.equal(inputToIso("2026-01-31T12:00"), new Date(2026, 0, 31, 12).toISOString());
  assert.equal(inputToIso("yesterday"), undefined);
  assert.deepEqual(filterOf("since=2026-01-31T12:00Z&until=x"), { since: "2026-01-31T12:00:00.000Z" });
});

test("a period takes the place of a custom time", () => {
  assert.equal(withFilter(new URLSearchParams("tab=audit&since=x&until=y"), "period", "7d").toString(), "tab=audit&period=7d");
  assert.equal(withFilter(new URLSearchParams("tab=audit&actor=a"), "actor", "").toString(), "tab=audit");
});
