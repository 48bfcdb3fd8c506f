import assert from "node:assert/strict";
import { fireEvent, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { post } from "../api/http.ts";
import { answerRequests, renderPage, type SentRequest } from "../testing/render.tsx";
import { NewToken } from "./new-token.tsx";

const form = (onClose = () => {}) => <NewToken title="New token" available={["runs:read", "runs:write", "tokens:write"]} allLabel="All of the role" create={(body) => post("/api/v1/tokens", { body })} onClose={onClose} />;
const bodyOf = (sent: SentRequest[]) => sent.find(({ method }) => method === "POST")?.body as { name: string; scopes: string[]; expires_at: string | null };

test("a new token may only read unless its maker says otherwise, and is shown once", async () => {
  const sent = answerRequests({ "POST /api/v1/tokens": { status: 201, body: { token: "ool_shown_once" } } });
  renderPage(form());
  const user = userEvent.setup();
  assert.ok(screen.getByRole("button", { name: "Create token" }).hasAttribute("disabled"), "it has no name yet");
  fireEvent.change(screen.getByLabelText(/^Name/), { target: { value: "laptop" } });
  await user.click(screen.getByRole("button", { name: "Create token" }));
  assert.equal((await screen.findByTestId("shown-once")).textContent, "ool_shown_once");
  const body = bodyOf(sent);
  assert.deepEqual([body.name, body.scopes], ["laptop", ["runs:read"]]);
  const days = (Date.parse(body.expires_at!) - Date.now()) / 86_400_000;
  assert.ok(days > 89 && days <= 90, String(days));
});

test("scopes can be chosen one by one, or be all of the role", async () => {
  const sent = answerRequests({ "POST /api/v1/tokens": { status: 201, body: { token: "ool_x" } } });
  renderPage(form());
  const user = userEvent.setup();
  await user.click(screen.getByRole("checkbox", { name: "runs:write" }));
  await user.click(screen.getByRole("checkbox", { name: "runs:read" }));
  assert.ok(screen.getByRole<HTMLInputElement>("checkbox", { name: "runs:write" }).checked);
  await user.click(screen.getByRole("radio", { name: "All of the role" }));
  assert.equal(screen.queryByRole("checkbox"), null);
  fireEvent.change(screen.getByLabelText(/^Name/), { target: { value: "notebook" } });
  await user.click(screen.getByRole("button", { name: "Create token" }));
  await screen.findByTestId("shown-once");
  assert.deepEqual(bodyOf(sent).scopes, ["*"]);
});

test("an error stands at its field", async () => {
  answerRequests({ "POST /api/v1/tokens": { status: 422, body: { title: "Invalid", status: 422, code: "invalid", detail: "one field", errors: [{ pointer: "/name", code: "blank", message: "this name is blank" }] } } });
  renderPage(form());
  const user = userEvent.setup();
  fireEvent.change(screen.getByLabelText(/^Name/), { target: { value: "x" } });
  await user.click(screen.getByRole("button", { name: "Create token" }));
  assert.ok(await screen.findByText("This name is blank"));
  assert.equal(screen.queryByRole("alert"), null, "said once");
});
