import assert from "node:assert/strict";
import { test } from "vitest";

import { readScopes, scopeRows, scopesText } from "./scopes.ts";

test("scopes are rows of an area, with reading first", () => {
  assert.deepEqual(scopeRows(["runs:admin", "audit:read", "runs:write", "runs:read"]), [
    { area: "audit", actions: ["read"] },
    { area: "runs", actions: ["read", "write", "admin"] },
  ]);
});

test("only reading leaves out every scope that changes something", () => {
  assert.deepEqual(readScopes(["runs:read", "runs:write", "tokens:write"]), ["runs:read"]);
});

test("the wildcard is shown in words", () => {
  assert.equal(scopesText(["*"]), "all that the role allows");
  assert.equal(scopesText(["runs:*", "datasets:read"]), "runs:*, datasets:read");
});
