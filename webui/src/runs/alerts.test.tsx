import { screen } from "@testing-library/react";
import assert from "node:assert/strict";
import { test } from "vitest";

import type { Run } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { Alerts } from "./alerts.tsx";

const RUN = { id: "run_1", status: "RUNNING" } as Run;
const alert = (severity: string, title: string) => ({ id: title, rule: title, severity, title, message: "it is low", advice: "Raise clip_high.", train_step: 4, opened_at: "2026-11-01T00:00:00Z" });
const answer = () => answerRequests({ "GET /api/v1/runs/run_1/alerts?open=true&limit=50": { body: { data: [alert("info", "Reward is flat"), alert("warning", "Entropy collapses")], next_cursor: null, has_more: false } } });

test("each alert has its advice, the most severe first", async () => {
  answer();
  renderPage(<Alerts run={RUN} />);
  const [first] = await screen.findAllByText("Raise clip_high.");
  assert.match(first!.parentElement!.textContent!, /Entropy collapses/);
});

test("beside another tab the alerts are one line that leads to the advice", async () => {
  answer();
  renderPage(<Alerts run={RUN} isBrief />);
  await screen.findByText("Entropy collapses · Reward is flat");
  assert.equal(screen.queryByText("Raise clip_high."), null);
  screen.getByRole("link", { name: "Advice" });
});
