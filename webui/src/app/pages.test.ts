import assert from "node:assert/strict";
import { test } from "vitest";

import { pageOf, visiblePages, visibleParts } from "./pages.ts";

const VIEWER = { scopes: ["members:read", "secrets:read", "tokens:read"] };
const labels = (entries: readonly { label: string }[]) => entries.map(({ label }) => label);

test("a page for admins exists only for them", () => {
  assert.equal(labels(visiblePages(VIEWER)).includes("Admin"), false);
  assert.equal(labels(visiblePages({ scopes: ["pool:admin"] })).includes("Admin"), true);
  assert.equal(labels(visiblePages(undefined)).includes("Team"), true);
});

test("the search finds only the parts that the role may see", () => {
  assert.deepEqual(labels(visibleParts(VIEWER)), ["Tokens", "Service accounts", "Secrets"]);
  assert.deepEqual(visibleParts(undefined), []);
});

test("each part belongs to a page", () => {
  const everything = { scopes: ["tokens:read", "members:admin", "members:read", "secrets:read", "webhooks:admin", "audit:read", "installation:admin"] };
  for (const { to } of visibleParts(everything)) assert.ok(pageOf(new URL(to, "http://oolong").pathname), to);
});
