import assert from "node:assert/strict";
import { test } from "vitest";

import { formOf, limitError, projectBody, quotaMeaning, teamBody } from "./quota.ts";

test("an empty limit is lifted, and an empty lending limit lends all", () => {
  assert.deepEqual(teamBody({ nominal: 4, limit: "", lending: "" }), { nominal_slots: 4, limit_slots: null, lending_limit: null });
  assert.deepEqual(teamBody({ nominal: "", limit: 0, lending: 2 }), { nominal_slots: 0, limit_slots: 0, lending_limit: 2 });
  assert.deepEqual(projectBody({ nominal: 1, limit: "", lending: 9 }), { nominal_slots: 1, limit_slots: null });
});

test("a form begins with the quota that is set", () => {
  const team = { id: "team_1", name: "red" };
  assert.deepEqual(formOf({ team, nominal_slots: 4, limit_slots: null, lending_limit: 2, used_slots: 1 }), { nominal: 4, limit: "", lending: 2 });
  assert.deepEqual(formOf({ project: team, nominal_slots: 0, limit_slots: 3, used_slots: 0 }), { nominal: 0, limit: 3, lending: "" });
});

test("the meaning is said in words", () => {
  assert.equal(quotaMeaning("red", { nominal: 4, limit: "", lending: 2 }, true), "red always gets 4 slots, and borrows as many idle ones as there are. Others borrow at most 2 slots of them.");
  assert.equal(quotaMeaning("red", { nominal: 0, limit: 1, lending: "" }, true), "red has no slots of its own, and holds at most 1 slot, borrowed ones included.");
});

test("a limit below the nominal quota is an error at the limit", () => {
  assert.match(limitError({ nominal: 4, limit: 2, lending: "" }) ?? "", /Below the nominal 4 slots/);
  assert.equal(limitError({ nominal: 2, limit: 2, lending: 5 }), undefined);
});
