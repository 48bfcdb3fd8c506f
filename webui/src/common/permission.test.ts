import assert from "node:assert/strict";
import { test } from "node:test";

import { whyReadOnly } from "./permission.ts";

test("a viewer is told why the controls are off, and nobody else is", () => {
  assert.match(whyReadOnly("viewer") ?? "", /role in this project is viewer/);
  for (const role of ["editor", "admin", null, undefined]) assert.equal(whyReadOnly(role), null);
});
