import assert from "node:assert/strict";
import { useQuery } from "@tanstack/react-query";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { checkpointAliases } from "../api/checkpoint-queries.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { AliasDialogs } from "./alias-dialogs.tsx";
import "./set-gate.tsx"; // else the first dialog that needs it waits for its parser

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
const show = () => renderPage(<AliasDialogs shown={{ kind: "set", name: "prod", checkpoint: "ckpt_new" }} showDialog={() => {}} close={() => {}} />);

test("a failed gate shows the measured value, and an editor can neither move the alias nor override", async () => {
  answerRequests(answers(EDITOR, result("failed", 0.6)));
  show();
  assert.ok(await screen.findByText("0.600 does not hold"));
  assert.ok(screen.getByText(/A role with checkpoints:admin/));
  assert.ok(screen.getByText("To change or remove this gate, a role needs checkpoints:admin."));
  assert.equal(screen.queryByRole("button", { name: "Remove the gate" }), null);
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
  renderPage(<AliasDialogs shown={{ kind: "remove", name: "best" }} showDialog={() => {}} close={() => { closed += 1; }} />);
  assert.ok(screen.getByText(/the retention policy may delete it from now on/));
  assert.ok(screen.getByRole("button", { name: "Cancel" }).hasAttribute("data-autofocus"));
  await userEvent.setup().click(screen.getByRole("button", { name: "Remove alias" }));
  await waitFor(() => assert.equal(closed, 1));
  assert.ok(sent.some(({ method }) => method === "DELETE"));
});

test("a refused removal says why, and the aliases are fetched again", async () => {
  const refusal = { status: 409, body: { title: "Conflict", status: 409, code: "conflict", detail: "best was moved a moment ago" } };
  const sent = answerRequests({ ...answers(EDITOR, result("missing", null)), "DELETE /api/v1/checkpoint-aliases/best": refusal });
  const page = (
    <>
      <Watching />
      <AliasDialogs shown={{ kind: "remove", name: "best" }} showDialog={() => {}} close={() => assert.fail("it was closed")} />
    </>
  );
  renderPage(page);
  const lists = () => sent.filter(({ url }) => url.includes("/checkpoint-aliases?")).length;
  await waitFor(() => assert.equal(lists(), 1));
  await userEvent.setup().click(screen.getByRole("button", { name: "Remove alias" }));
  assert.ok(await screen.findByText("best was moved a moment ago"));
  await waitFor(() => assert.equal(lists(), 2));
});

function Watching() {
  useQuery(checkpointAliases);
  return null;
}

const WHOLE_GATE = { alias: "prod", spec: { dataset: { version: "sums@2", split: "eval" }, evaluation: { prompts: 64 } }, assertions: ["eval/accuracy >= 0.8"], updated_by: "ann", updated_at: "2026-01-01T00:00:00Z" };
const gateAnswers = {
  "GET /api/v1/checkpoint-gates?limit=200": { body: { data: [WHOLE_GATE] } },
  "GET /api/v1/runs?kind=eval&limit=20": { body: { data: [{ id: "run_eval", name: "nightly check" }], next_cursor: null, has_more: false } },
  "GET /api/v1/runs/run_eval": { body: { id: "run_eval", spec: { kind: "eval", name: "nightly check", model: { checkpoint: "ckpt_1" }, dataset: { version: "letters@3", split: "eval" }, evaluation: { prompts: 128 } } } },
};

test("the gate of an alias is changed from what it says now", async () => {
  const sent = answerRequests({ ...gateAnswers, "POST /api/v1/checkpoint-gates": { status: 201, body: WHOLE_GATE } });
  renderPage(<AliasDialogs shown={{ kind: "gate", name: "prod" }} showDialog={() => {}} close={() => {}} />);
  const assertions = await screen.findByLabelText(/^Assertions/);
  assert.match(screen.getByLabelText<HTMLTextAreaElement>(/^Evaluation/).value, /version: sums@2/);
  const user = userEvent.setup();
  await user.type(assertions, "\neval/prompts >= 64");
  await user.click(screen.getByTestId("confirm-set-gate"));
  await waitFor(() => assert.deepEqual(sent.find(({ method, url }) => method === "POST" && url.endsWith("checkpoint-gates"))?.body, {
    alias: "prod", assertions: ["eval/accuracy >= 0.8", "eval/prompts >= 64"], spec: { dataset: { version: "sums@2", split: "eval" }, evaluation: { prompts: 64 } },
  }));
});

test("a gate takes over the evaluation of an eval run, without its model", async () => {
  answerRequests({ ...gateAnswers, "GET /api/v1/checkpoint-gates?limit=200": { body: { data: [] } } });
  renderPage(<AliasDialogs shown={{ kind: "gate", name: "" }} showDialog={() => {}} close={() => {}} />);
  const user = userEvent.setup();
  await user.click(await screen.findByRole("combobox", { name: "Like the evaluation of" }));
  await user.click(await screen.findByText("nightly check"));
  await waitFor(() => assert.match(screen.getByLabelText<HTMLTextAreaElement>(/^Evaluation/).value, /letters@3/));
  assert.doesNotMatch(screen.getByLabelText<HTMLTextAreaElement>(/^Evaluation/).value, /ckpt_1|kind/);
});

test("what the API refuses about a gate stands at its field, and text that is no YAML is not sent", async () => {
  const refusal = { status: 422, body: { code: "invalid_request", detail: "no", errors: [{ pointer: "/assertions/0", code: "unknown_metric", message: "'eval/luck' is not a metric of an evaluation" }] } };
  answerRequests({ ...gateAnswers, "POST /api/v1/checkpoint-gates": refusal });
  renderPage(<AliasDialogs shown={{ kind: "gate", name: "prod" }} showDialog={() => {}} close={() => {}} />);
  const user = userEvent.setup();
  await user.click(await screen.findByTestId("confirm-set-gate"));
  assert.ok(await screen.findByText("'eval/luck' is not a metric of an evaluation"));
  await user.type(screen.getByLabelText(/^Evaluation/), ": : :");
  assert.ok(await screen.findByText(/^Line \d+: /));
  assert.equal(screen.getByTestId<HTMLButtonElement>("confirm-set-gate").disabled, true);
});

test("removing a gate says who can move the alias then", async () => {
  const sent = answerRequests({ "DELETE /api/v1/checkpoint-gates/prod": { status: 204 } });
  renderPage(<AliasDialogs shown={{ kind: "remove-gate", name: "prod" }} showDialog={() => {}} close={() => {}} />);
  assert.ok(screen.getByText(/without an evaluation/));
  await userEvent.setup().click(screen.getByRole("button", { name: "Remove gate" }));
  await waitFor(() => assert.ok(sent.some(({ method }) => method === "DELETE")));
});

test("where an alias is moved, an admin opens its gate, and an ungated alias offers one", async () => {
  const opened: unknown[] = [];
  const open = () => renderPage(<AliasDialogs shown={{ kind: "set", name: "prod", checkpoint: "" }} showDialog={(dialog) => opened.push(dialog)} close={() => {}} />);
  answerRequests(answers([...EDITOR, "checkpoints:admin"], result("missing", null)));
  const gated = open();
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Change the gate" }));
  await user.click(screen.getByRole("button", { name: "Remove the gate" }));
  assert.ok(screen.getByText("Name a checkpoint to see whether it passes."));
  gated.unmount();
  answerRequests({ ...answers([...EDITOR, "checkpoints:admin"], result("missing", null)), "GET /api/v1/checkpoint-gates?limit=200": { body: { data: [] } } });
  open();
  await user.click(await screen.findByRole("button", { name: "Set a gate" }));
  assert.deepEqual(opened, [{ kind: "gate", name: "prod" }, { kind: "remove-gate", name: "prod" }, { kind: "gate", name: "prod" }]);
});

test("a gate without a measurement says why in words", async () => {
  answerRequests(answers(EDITOR, { ...result("missing", null), why: "no eval run has scored ckpt_new" }));
  show();
  assert.ok(await screen.findByText("no eval run has scored ckpt_new"));
});
