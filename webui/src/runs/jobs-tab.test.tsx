import assert from "node:assert/strict";
import { screen, within } from "@testing-library/react";
import { test } from "vitest";

import type { Job, Run } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { JobsTab } from "./jobs-tab.tsx";

const job = (name: string, node: string) => ({
  id: `job_${name}`, name, kind: "rollout", attempt_number: 1, state: "running", node: { id: node, name: node }, slots: ["cpu-0"],
  evaluates: null, incarnation: 0, pid: 1, exit_code: null, reason: "", message: "", started_at: null, ended_at: null,
}) as Job;

test("each engine is shown with its own node", async () => {
  answerRequests({ "GET /api/v1/runs/run_1/jobs": { body: { data: [job("rollout-0", "home"), job("rollout-1", "away")], next_cursor: null } } });
  renderPage(<JobsTab run={{ id: "run_1" } as Run} />);
  const row = (await screen.findByText("rollout-1")).closest("tr")!;
  assert.ok(within(row).getByText("away"));
  assert.ok(within(screen.getByText("rollout-0").closest("tr")!).getByText("home"));
});
