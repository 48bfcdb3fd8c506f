import assert from "node:assert/strict";
import { test } from "vitest";

import { missingScopeReason, readOnlyReason } from "./permission.ts";

test("only a viewer gets a reason for disabled controls", () => {
  assert.match(readOnlyReason("viewer") ?? "", /role in this project is viewer/);
  for (const role of ["editor", "admin", null, undefined]) assert.equal(readOnlyReason(role), null);
});

test("a missing permission is named with the way out", () => {
  assert.equal(missingScopeReason(["runs:write"], "runs:write"), null);
  assert.match(missingScopeReason(undefined, "runs:write") ?? "", /lacks the permission runs:write\. Ask an admin/);
});
