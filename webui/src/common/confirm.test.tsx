import assert from "node:assert/strict";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { remove } from "../api/http.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { Confirm } from "./confirm.tsx";

const dialog = (onClose: () => void) => (
  <Confirm title="Revoke laptop?" action="Revoke" changes={[]} onClose={onClose} run={() => remove("/api/v1/tokens/{token_id}", { path: { token_id: "tok_1" } })}>Requests with it fail.</Confirm>
);

test("a destructive dialog says its effect, and Cancel has the focus", () => {
  renderPage(dialog(() => {}));
  assert.ok(screen.getByText("Requests with it fail."));
  assert.ok(screen.getByRole("button", { name: "Cancel" }).hasAttribute("data-autofocus"));
  assert.equal(screen.getByTestId("confirm").textContent, "Revoke");
});

test("it closes when it is done", async () => {
  answerRequests({ "DELETE /api/v1/tokens/tok_1": { status: 204 } });
  let closed = 0;
  renderPage(dialog(() => { closed += 1; }));
  await userEvent.setup().click(screen.getByTestId("confirm"));
  await waitFor(() => assert.equal(closed, 1));
});

test("a refusal is shown, and the dialog stays", async () => {
  answerRequests({ "DELETE /api/v1/tokens/tok_1": { status: 404, body: { title: "Not found", status: 404, code: "not_found", detail: "There is no token tok_1." } } });
  let closed = 0;
  renderPage(dialog(() => { closed += 1; }));
  await userEvent.setup().click(screen.getByTestId("confirm"));
  assert.ok(await screen.findByText("There is no token tok_1."));
  assert.equal(closed, 0);
});
