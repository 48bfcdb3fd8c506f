import assert from "node:assert/strict";
import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { answerRequests, renderPage, type SentRequest } from "../testing/render.tsx";
import type { Budget } from "../api/schema.d.ts";
import { Budgets } from "./budgets.tsx";

const LIST = "GET /api/v1/pools/default/budgets";
const TEAM = "PUT /api/v1/pools/default/teams/team_1/budget";
const PROJECT = "PUT /api/v1/pools/default/projects/prj_1/budget";
const RED = { id: "team_1", name: "red" };
const MATH = { id: "prj_1", name: "math" };
const budget = (changes: Partial<Budget>): Budget => ({
  team: RED, project: null, gpu_hours: "500.00", cost: null, currency: "EUR", since: "2026-11-01T00:00:00Z",
  until: "2026-12-01T00:00:00Z", used_gpu_hours: 120.5, used_cost: 0, used_frac: 0.241, state: "within", message: "", ...changes,
});
const ofMath = (changes: Partial<Budget>) => budget({ project: MATH, gpu_hours: null, cost: "20.00", ...changes });
const list = (...data: Budget[]) => ({ body: { data, next_cursor: null, has_more: false } });

/** The answers for a caller with these scopes, who is a pool admin or not. */
const asCaller = (scopes: string[], { mayManage = false } = {}) => ({
  "GET /api/v1/me": { body: { scopes, team: RED } },
  "GET /api/v1/pools": { body: { data: [{ name: "default", may_manage: mayManage }], next_cursor: null } },
  "GET /api/v1/pools/default/teams": { body: { data: [{ team: RED }, { team: { id: "team_2", name: "blue" } }] } },
  "GET /api/v1/projects?limit=200": { body: { data: [{ ...MATH, team: RED }, { id: "prj_9", name: "elsewhere", team: { id: "team_2", name: "blue" } }], has_more: false } },
});
const READER = asCaller(["pool:read"]);
const TEAM_ADMIN = asCaller(["pool:read", "team:admin"]);
const POOL_ADMIN = asCaller(["pool:read", "team:admin", "pool:admin"], { mayManage: true });
const show = () => renderPage(<Budgets currency="EUR" />);
const changes = (sent: SentRequest[]) => sent.filter(({ method }) => method === "PUT").map(({ url, body }) => [url, body]);

test("a budget shows what is used, and what follows when it is used up", async () => {
  const message = "project math has used 24.00 of its 20.00 EUR of November in pool default; queued runs start on 1 December, or when a team admin raises the budget";
  answerRequests({ ...READER, [LIST]: list(budget({}), ofMath({ used_cost: 24, used_frac: 1.2, state: "exhausted", message })) });
  show();
  const found = await screen.findByTestId("budgets");
  assert.ok(within(found).getByText("120.5 of 500 GPU-hours"));
  const meter = within(found).getByRole("meter", { name: "Budget of Project math" });
  assert.equal(meter.getAttribute("aria-valuetext"), "120 % used");
  assert.equal(meter.getAttribute("aria-valuenow"), "100");
  assert.ok(within(found).getByText(/Used up: runs pause\. project math has used/));
});

test("who may change no budget sees who may, and without budgets no panel", async () => {
  const sent = answerRequests({ ...READER, [LIST]: list(budget({}), ofMath({})) });
  const first = show();
  assert.ok(await screen.findByText("Admins of the pool set the budgets of teams. Admins of the team set the budgets of its projects."));
  assert.equal(screen.queryByRole("button"), null);
  first.unmount();
  answerRequests({ ...READER, [LIST]: list() });
  show();
  await waitFor(() => assert.ok(sent.some(({ url }) => url.endsWith("/budgets"))));
  assert.equal(screen.queryByText("Budgets of this month"), null);
});

test("budgets that cannot be loaded say so", async () => {
  answerRequests({ ...READER, [LIST]: { status: 429, body: { title: "Too many requests", status: 429, code: "throttled", detail: "wait 3 s" } } });
  show();
  assert.ok(await screen.findByRole("alert"));
});

test("a pool admin sets the first budget of a team, in hours, money or both", async () => {
  const sent = answerRequests({ ...POOL_ADMIN, [LIST]: list(), [TEAM]: { body: budget({}) } });
  show();
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Set a budget" }));
  assert.equal(screen.getByRole<HTMLButtonElement>("button", { name: "Set budget" }).disabled, true, "no limit is no budget");
  await waitFor(() => assert.equal(screen.getByRole<HTMLInputElement>("combobox", { name: "Whose" }).value, "red"));
  await user.type(screen.getByLabelText("GPU-hours per month"), "500");
  await user.type(screen.getByLabelText("Cost per month, EUR"), "1200.50");
  await user.click(screen.getByRole("button", { name: "Set budget" }));
  await waitFor(() => assert.deepEqual(changes(sent), [["/api/v1/pools/default/teams/team_1/budget", { gpu_hours: "500", cost: "1200.50" }]]));
  await waitFor(() => assert.equal(screen.queryByRole("dialog"), null));
});

test("an admin of the team sets those of its projects only, and an empty field lifts a limit", async () => {
  const sent = answerRequests({ ...TEAM_ADMIN, [LIST]: list(budget({}), ofMath({ gpu_hours: "9.00" })), [PROJECT]: { body: ofMath({}) } });
  show();
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Change the budget of Project math in pool default" }));
  assert.equal(screen.queryByRole("button", { name: "Change the budget of Team red in pool default" }), null);
  await user.clear(screen.getByLabelText("GPU-hours per month"));
  await user.click(screen.getByRole("button", { name: "Set budget" }));
  await waitFor(() => assert.deepEqual(changes(sent), [["/api/v1/pools/default/projects/prj_1/budget", { gpu_hours: null, cost: "20" }]]));
});

test("a limit below what is used says that runs pause, and a refusal stands at its field", async () => {
  const refusal = { status: 422, body: { code: "invalid", detail: "/cost: a number is required", errors: [{ pointer: "/cost", code: "invalid", message: "a number is required" }] } };
  answerRequests({ ...POOL_ADMIN, [LIST]: list(budget({})), [TEAM]: refusal });
  show();
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Set a budget" }));
  const hours = await screen.findByLabelText<HTMLInputElement>("GPU-hours per month");
  await waitFor(() => assert.equal(hours.value, "500"));
  await user.clear(hours);
  await user.type(hours, "100");
  assert.ok(screen.getByText(/used up already/));
  assert.match(screen.getByTestId("budget-meaning").textContent ?? "", /Used this month: 120\.5 GPU-hours/);
  await user.type(screen.getByLabelText("Cost per month, EUR"), "much");
  await user.click(screen.getByRole("button", { name: "Set budget" }));
  assert.ok(await screen.findByText("A number is required"));
});

test("removing a budget says what may run then", async () => {
  const sent = answerRequests({ ...POOL_ADMIN, [LIST]: list(budget({})), [TEAM]: { body: budget({ gpu_hours: null }) } });
  show();
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Remove the budget of Team red in pool default" }));
  assert.ok(screen.getByText(/stay paused until somebody resumes them/));
  await user.click(screen.getByRole("button", { name: "Remove budget" }));
  await waitFor(() => assert.deepEqual(changes(sent), [["/api/v1/pools/default/teams/team_1/budget", { gpu_hours: null, cost: null }]]));
});
