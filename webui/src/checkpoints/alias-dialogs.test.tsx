import assert from "node:assert/strict";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { AliasDialogs } from "./alias-dialogs.tsx";

const checkpoint = { id: "ckpt_old", run: { id: "run_1", name: "letters" }, step: 20 };
const GATE = { alias: "prod", assertions: ["eval/accuracy >= 0.8"] };
const result = (status: string, value: number | null) => ({
  alias: "prod", checkpoint: "ckpt_new", status, run: value === null ? null : "run_eval", why: "", command: "",
  checks: value === null ? [] : [{ assertion: "eval/accuracy >= 0.8", value, holds: value >= 0.8 }],
});

function answers(scopes: string[], gateResult: ReturnType<typeof result>) {
  return {
    "GET /api/v1/me": { body: { scopes } },
    "GET /api/v1/checkpoint-aliases?limit=200": { body: { data: [{ name: "prod", checkpoint, protected: true, evidence: null, updated_by: "ann", updated_at: "2026-01-01T00:00:00Z" }] } },
    "GET /api/v1/checkpoint-gates?limit=200": { body: { data: [GATE] } },
    "GET /api/v1/checkpoint-gates/prod/result?checkpoint=ckpt_new": { body: gateResult },
    "PUT /api/v1/checkpoint-aliases/prod": { body: { name: "prod", checkpoint: { ...checkpoint, id: "ckpt_new", step: 40 } } },
  };
}

const EDITOR = ["checkpoints:read", "checkpoints:write", "runs:write"];
const show = () => renderPage(<AliasDialogs shown={{ kind: "set", name: "prod", checkpoint: "ckpt_new" }} close={() => {}} />);

test("a failed gate shows the measured value, and an editor can neither move the alias nor override", async () => {
  answerRequests(answers(EDITOR, result("failed", 0.6)));
  show();
  assert.ok(await screen.findByText("0.600 does not hold"));
  assert.ok(screen.getByText(/A role with checkpoints:admin/));
  assert.equal(screen.getByTestId<HTMLButtonElement>("confirm-set-alias").disabled, true);
  assert.equal(screen.queryByLabelText("Override the gate of prod"), null);
  assert.equal(screen.queryByLabelText("Protected"), null);
});

test("an operator overrides the gate only by a choice of its own, and names the checkpoint that the alias had", async () => {
  const sent = answerRequests(answers([...EDITOR, "checkpoints:admin"], result("missing", null)));
  show();
  const user = userEvent.setup();
  await user.click(await screen.findByLabelText("Override the gate of prod"));
  await user.click(screen.getByRole("button", { name: "Override the gate and move" }));
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "PUT")?.body, { checkpoint: "ckpt_new", protected: null, expected: "ckpt_old", force: true }));
});

test("a passed gate moves the alias without force", async () => {
  const sent = answerRequests(answers(EDITOR, result("passed", 0.9)));
  show();
  await screen.findByText("0.900 holds");
  await userEvent.setup().click(screen.getByTestId("confirm-set-alias"));
  await waitFor(() => assert.equal((sent.find(({ method }) => method === "PUT")?.body as { force: boolean }).force, false));
});

test("a checkpoint that does not exist is said in the dialog", async () => {
  const missing = { status: 404, body: { title: "Not Found", status: 404, code: "not_found", detail: "no checkpoint 'ckpt_new'" } };
  answerRequests({ ...answers(EDITOR, result("missing", null)), "GET /api/v1/checkpoint-gates/prod/result?checkpoint=ckpt_new": missing });
  show();
  assert.ok(await screen.findByText("no checkpoint 'ckpt_new'"));
});

test("the dialog that removes an alias says what follows, and Cancel has the focus", async () => {
  const sent = answerRequests({ "DELETE /api/v1/checkpoint-aliases/best": { status: 204 } });
  let closed = 0;
  renderPage(<AliasDialogs shown={{ kind: "remove", name: "best" }} close={() => { closed += 1; }} />);
  assert.ok(screen.getByText(/the retention policy may delete it from now on/));
  assert.ok(screen.getByRole("button", { name: "Cancel" }).hasAttribute("data-autofocus"));
  await userEvent.setup().click(screen.getByTestId("confirm-remove-alias"));
  await waitFor(() => assert.equal(closed, 1));
  assert.ok(sent.some(({ method }) => method === "DELETE"));
});
