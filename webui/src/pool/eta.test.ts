import assert from "node:assert/strict";
import { test } from "vitest";

import type { Eta } from "../api/schema.d.ts";
import { etaText } from "./eta.ts";

const NOW = Date.parse("2026-01-01T12:00:00Z");
const at = (minutes: number) => new Date(NOW + minutes * 60_000).toISOString();
const eta = (p50: number | null, p90: number | null, message = ""): Eta => ({
  p50: p50 === null ? null : at(p50), p90: p90 === null ? null : at(p90), source: "replay", message,
});

test("a start has an estimate and a later bound", () => {
  assert.deepEqual(etaText(eta(12, 45), NOW), { text: "in 12 min", detail: "90 % within 45 min" });
  assert.deepEqual(etaText(eta(95, 30 * 60), NOW), { text: "in 1.6 h", detail: "90 % within 30 h" });
  assert.deepEqual(etaText(eta(72 * 60, null), NOW), { text: "in 3 d", detail: "may take longer" });
});

test("a start that is due comes any moment", () => {
  assert.equal(etaText(eta(-3, 1), NOW).text, "any moment");
});

test("a bound alone is no estimate, and what is unknown is said with its reason", () => {
  assert.deepEqual(etaText(eta(null, 60), NOW), { text: "within 60 min", detail: "at the latest; no estimate" });
  assert.deepEqual(etaText(eta(null, null, "it waits for runs whose end is unknown"), NOW), {
    text: "unknown", detail: "it waits for runs whose end is unknown",
  });
});
