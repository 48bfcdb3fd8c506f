import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import { test } from "vitest";

import type { RunDetail } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { FailurePanel } from "./failure-panel.tsx";

const RUN = {
  id: "run_1", name: "sums", status: "PAUSED", conditions: ["NEEDS_ATTENTION"], reason: "reward_error_rate", reason_message: "60 % of rewards failed", fault: "reward",
  advice: "Resume the run if the cause is gone.", train_step: 12, status_at: "2026-01-01T00:00:00Z", ended_at: null, latest_checkpoint: { id: "ckpt_9", step: 10 },
} as unknown as RunDetail;
const ME = { body: { role: "editor" } };
const LOG = 'step 1\nTraceback (most recent call last):\n  File "r.py", line 3, in score\nKeyError: \'<b>box</b>\'\n[reward] 60 % failed\n';

function answers(me = ME) {
  answerRequests({
    "GET /api/v1/me": me,
    "GET /api/v1/runs/run_1/jobs": { body: { data: [{ id: "job_r", exit_code: null }] } },
    "GET /api/v1/runs/run_1/logs": { body: { data: [{ job: "job_r", name: "reward", attempt: 1, incarnation: 0, bytes: 150 }] } },
    "GET /api/v1/runs/run_1/logs?job=job_r&incarnation=0&offset=0&limit=65536": { body: { text: LOG } },
  });
}

test("a run paused by its reward says the cause, whose fault, the traceback, the last lines and what to do", async () => {
  answers();
  renderPage(<FailurePanel run={RUN} isBrief={false} />);
  assert.ok(screen.getByRole("heading", { name: "Paused by an error: reward error rate" }));
  assert.ok(screen.getByText("60 % of rewards failed") && screen.getByText("The reward function") && screen.getByText(RUN.advice));
  assert.match((await screen.findByTestId("traceback")).textContent, /KeyError: '<b>box<\/b>'$/);
  assert.match(screen.getByTestId("last-lines").textContent, /60 % failed$/);
  assert.ok(screen.getByTestId("resume"));
  assert.equal(screen.getByTestId("fork").getAttribute("href"), "/runs/new?from=run_1&checkpoint=ckpt_9");
  assert.equal(screen.getByTestId("fork").textContent, "Fork with a new reward");
});

test("a viewer reads the cause and gets the reason instead of the actions", async () => {
  answers({ body: { role: "viewer" } });
  renderPage(<FailurePanel run={{ ...RUN, status: "FAILED", fault: "data" }} isBrief={false} />);
  assert.ok(await screen.findByText(/Your role in this project is viewer/));
  assert.equal(screen.queryByTestId("retry"), null);
});

test("on the other tabs it is one line", () => {
  renderPage(<FailurePanel run={RUN} isBrief />);
  assert.ok(screen.getByText("Paused by an error: reward error rate"));
  assert.equal(screen.queryByTestId("failure"), null);
});
