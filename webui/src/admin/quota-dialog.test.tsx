import assert from "node:assert/strict";
import { fireEvent, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { renderPage } from "../testing/render.tsx";
import { QuotaDialog } from "./quota-dialog.tsx";
import { teamBody, type QuotaForm } from "./quota.ts";

const QUOTA = { team: { id: "team_1", name: "red" }, nominal_slots: 2, limit_slots: 4, lending_limit: null, used_slots: 1 };

function open() {
  const saved: QuotaForm[] = [];
  let closed = 0;
  renderPage(<QuotaDialog title="Quota of red in lab" name="red" quota={QUOTA} withLending save={async (form) => { saved.push(form); }} onClose={() => { closed += 1; }} />);
  return { saved, isClosed: () => closed === 1, user: userEvent.setup() };
}

test("a limit is lifted with one click", async () => {
  const { saved, isClosed, user } = open();
  assert.match(screen.getByTestId("quota-meaning").textContent ?? "", /red always gets 2 slots, and holds at most 4 slots/);
  await user.click(screen.getByRole("button", { name: "Lift the limit" }));
  assert.match(screen.getByTestId("quota-meaning").textContent ?? "", /borrows as many idle ones as there are/);
  await user.click(screen.getByRole("button", { name: "Set quota" }));
  await waitFor(() => assert.ok(isClosed()));
  assert.deepEqual(teamBody(saved[0]!), { nominal_slots: 2, limit_slots: null, lending_limit: null });
});

test("a limit below the nominal quota cannot be set, and says why at the field", async () => {
  open();
  fireEvent.change(screen.getByLabelText("Limit"), { target: { value: "1" } });
  assert.ok(screen.getByText(/Below the nominal 2 slots/));
  assert.ok(screen.getByRole("button", { name: "Set quota" }).hasAttribute("disabled"));
});
