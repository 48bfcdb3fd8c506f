import assert from "node:assert/strict";
import { test } from "vitest";

import { readOnlyReason } from "./permission.ts";

test("only a viewer gets a reason for disabled controls", () => {
  assert.match(readOnlyReason("viewer") ?? "", /role in this project is viewer/);
  for (const role of ["editor", "admin", null, undefined]) assert.equal(readOnlyReason(role), null);
});
