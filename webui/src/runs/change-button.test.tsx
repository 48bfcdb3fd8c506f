import assert from "node:assert/strict";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Run } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { ChangeButton } from "./change-button.tsx";

const RUN = { id: "run_1", name: "letters", kind: "rl", status: "RUNNING", spec: { evaluation: {} } } as unknown as Run;

async function openMenu(run: Run) {
  const sent = answerRequests({ "POST /api/v1/runs/run_1/runtime": { body: run } });
  renderPage(<ChangeButton run={run} />);
  const user = userEvent.setup();
  await user.click(screen.getByTestId("ask-now"));
  return { sent, user };
}

test("a running run is asked for a checkpoint or an evaluation with one choice", async () => {
  const { sent, user } = await openMenu(RUN);
  await user.click(await screen.findByRole("menuitem", { name: /^Save a checkpoint now/ }));
  await waitFor(() => assert.deepEqual(sent.at(-1)?.body, { checkpoint: true }));
  await user.click(screen.getByTestId("ask-now"));
  await user.click(await screen.findByRole("menuitem", { name: /^Evaluate now/ }));
  await waitFor(() => assert.deepEqual(sent.at(-1)?.body, { evaluate: true }));
});

test("what the run cannot do now is disabled, with the reason", async () => {
  await openMenu({ ...RUN, spec: { ...RUN.spec, evaluation: null } });
  const item = await screen.findByRole("menuitem", { name: /Its spec has no evaluation section/ });
  assert.ok(item.hasAttribute("disabled") || item.hasAttribute("data-disabled"));
});
