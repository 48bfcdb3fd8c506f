import assert from "node:assert/strict";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Run } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { StopDialog, TagDialog } from "./bulk-dialogs.tsx";

const run = (id: string, status: string, tags: string[] = []) => ({ id, name: `name of ${id}`, status, tags }) as Run;
const RUNS = [run("run_a", "RUNNING"), run("run_b", "QUEUED"), run("run_c", "SUCCEEDED")];
const changes = (sent: { method: string; url: string }[]) => sent.filter(({ method }) => method !== "GET").map(({ method, url }) => `${method} ${url}`);

test("the stop dialog says what happens to each run, and the safe button has the focus", () => {
  renderPage(<StopDialog runs={RUNS} onClose={() => {}} />);
  assert.ok(screen.getByText(/^1 run finishes the current train step, commits a checkpoint and releases slots/));
  assert.ok(screen.getByText(/^1 run leaves the queue without having used slots/));
  assert.ok(screen.getByText(/^1 run of the selection is a draft, stopping or ended/));
  assert.ok(screen.getByRole("button", { name: "Keep runs" }).hasAttribute("data-autofocus"));
});

test("a running run is stopped and a queued one is cancelled", async () => {
  const sent = answerRequests({ "POST /api/v1/runs/run_a/stop": { body: {} }, "POST /api/v1/runs/run_b/cancel": { body: {} } });
  let closed = 0;
  renderPage(<StopDialog runs={RUNS} onClose={() => { closed += 1; }} />);
  await userEvent.setup().click(screen.getByTestId("confirm-bulk-stop"));
  await waitFor(() => assert.equal(closed, 1));
  assert.deepEqual(changes(sent), ["POST /api/v1/runs/run_a/stop", "POST /api/v1/runs/run_b/cancel"]);
});

test("a run that could not be stopped is named with the reason, and the dialog stays", async () => {
  answerRequests({
    "POST /api/v1/runs/run_a/stop": { status: 409, body: { title: "Conflict", status: 409, code: "invalid_state", detail: "The run has ended." } },
    "POST /api/v1/runs/run_b/cancel": { body: {} },
  });
  let closed = 0;
  renderPage(<StopDialog runs={RUNS} onClose={() => { closed += 1; }} />);
  await userEvent.setup().click(screen.getByTestId("confirm-bulk-stop"));
  assert.ok(await screen.findByText("name of run_a"));
  assert.ok(screen.getByText(/The run has ended/));
  assert.equal(closed, 0);
});

test("tags are added to the runs that lack them, and to no other", async () => {
  const sent = answerRequests({ "PATCH /api/v1/runs/run_a": { body: {} } });
  renderPage(<TagDialog runs={[run("run_a", "RUNNING", ["old"]), run("run_b", "RUNNING", ["new"])]} onClose={() => {}} />);
  const user = userEvent.setup();
  await user.type(screen.getByTestId("add-tags"), "new{Enter}");
  await user.click(screen.getByTestId("confirm-bulk-tag"));
  await waitFor(() => assert.deepEqual(changes(sent), ["PATCH /api/v1/runs/run_a"]));
  assert.deepEqual(sent.find(({ method }) => method === "PATCH")?.body, { tags: ["old", "new"] });
});
