import assert from "node:assert/strict";
import { screen, waitFor, within } from "@testing-library/react";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import type { Budget } from "../api/schema.d.ts";
import { Budgets } from "./budgets.tsx";

const LIST = "GET /api/v1/pools/default/budgets";
const POOLS = { "GET /api/v1/pools": { body: { data: [{ name: "default" }], next_cursor: null } } };
const budget = (changes: Partial<Budget>): Budget => ({
  team: { id: "team_1", name: "red" }, project: null, gpu_hours: "500.00", cost: null, currency: "EUR", since: "2026-11-01T00:00:00Z",
  until: "2026-12-01T00:00:00Z", used_gpu_hours: 120.5, used_cost: 0, used_frac: 0.241, state: "within", message: "", ...changes,
});

test("a budget shows what is used, and what follows when it is used up", async () => {
  const message = "project math has used 24.00 of its 20.00 EUR of November in pool default; queued runs start on 1 December, or when a team admin raises the budget";
  const over = budget({ project: { id: "prj_1", name: "math" }, gpu_hours: null, cost: "20.00", used_cost: 24, used_frac: 1.2, state: "exhausted", message });
  answerRequests({ ...POOLS, [LIST]: { body: { data: [budget({}), over], next_cursor: null } } });
  renderPage(<Budgets />);
  const list = await screen.findByTestId("budgets");
  assert.ok(within(list).getByText("120.5 of 500 GPU-hours"));
  const meter = within(list).getByRole("meter", { name: "Budget of Project math" });
  assert.equal(meter.getAttribute("aria-valuetext"), "120 % used");
  assert.equal(meter.getAttribute("aria-valuenow"), "100");
  assert.ok(within(list).getByText(/Used up: runs pause\. project math has used/));
});

test("without budgets the page has no panel for them", async () => {
  const sent = answerRequests({ ...POOLS, [LIST]: { body: { data: [], next_cursor: null } } });
  renderPage(<Budgets />);
  await waitFor(() => assert.ok(sent.some(({ url }) => url.endsWith("/budgets"))));
  assert.equal(screen.queryByText("Budgets of this month"), null);
});

test("budgets that cannot be loaded say so", async () => {
  answerRequests({ ...POOLS, [LIST]: { status: 429, body: { title: "Too many requests", status: 429, code: "throttled", detail: "wait 3 s" } } });
  renderPage(<Budgets />);
  assert.ok(await screen.findByRole("alert"));
});
