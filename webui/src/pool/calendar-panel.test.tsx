import assert from "node:assert/strict";
import { Table } from "@mantine/core";
import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { MaintenanceWindow, Node, Pool, Reservation } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { Calendar } from "./calendar-panel.tsx";
import { QuarantineRow } from "./quarantine.tsx";

const NODE: Node = {
  id: "node_1", name: "gpu-1", pool: "lab", status: "READY", hostname: "gpu-1", agent_version: "1", cpu_count: 8, memory_bytes: 1, disk_free_bytes: 1, provider: "manual", provider_job: "", partition: "", account: "", ends_at: null,
  model_roots: [], job_isolation: "none", job_isolation_reason: "", peer_network: "", slots: 8, drain_deadline: null, maintenance_ends_at: null, quarantined_at: null,
  quarantine_reason: "", enrolled_at: "2026-11-20T09:00:00Z", last_seen_at: "2026-11-20T09:00:00Z",
};
const QUOTA = { team: { id: "team_1", name: "blue" }, nominal_slots: 0, limit_slots: null, lending_limit: null, used_slots: 0 };
const POOL: Pool = {
  name: "lab", all_teams: true, trainer_code: false, may_manage: true, blocked_reason: "", pools: ["lab"], slots: [], nodes: [NODE], queue: [], leaving: [],
  quota: QUOTA, project_quota: { project: { id: "prj_1", name: "demo" }, nominal_slots: 0, limit_slots: null, used_slots: 0 },
};
const COMMON = { pool: "lab", nodes: [], state: "upcoming" as const, created_by: "alice", created_at: "2026-11-20T09:00:00Z" };
const RESERVATION: Reservation = {
  ...COMMON, id: "res_1", reason: "demo for the board", starts_at: "2026-11-20T14:00:00Z", ends_at: "2026-11-20T16:00:00Z", team: { id: "team_1", name: "blue" },
  project: null, slots: 8, device: "", allocation: [],
};
const WINDOW: MaintenanceWindow = {
  ...COMMON, id: "mnt_1", reason: "new fans", starts_at: "2026-11-21T12:00:00Z", ends_at: "2026-11-21T14:00:00Z", whole_pool: true, drains_at: "2026-11-21T11:45:00Z",
};
const page = (data: unknown[]) => ({ body: { data, next_cursor: null, has_more: false } });
const LISTS = { "GET /api/v1/pools/lab/reservations": page([RESERVATION]), "GET /api/v1/pools/lab/maintenance": page([WINDOW]) };

test("reservations and maintenance are listed together, and a cancellation says its effects", async () => {
  const sent = answerRequests({ ...LISTS, "DELETE /api/v1/pools/lab/reservations/res_1": { status: 204 } });
  const user = userEvent.setup();
  renderPage(<Calendar pool={POOL} />);
  const table = await screen.findByTestId("calendar");
  assert.deepEqual(within(table).getAllByRole("row").slice(1).map((row) => row.querySelector("strong")?.textContent), ["team blue", "Maintenance"]);
  await user.click(within(table).getByRole("button", { name: /^Cancel: team blue/ }));
  assert.ok(screen.getByText(/Runs that use them stay, and count toward the quota/));
  await user.click(screen.getByRole("button", { name: "Cancel reservation" }));
  await waitFor(() => assert.ok(sent.some(({ method }) => method === "DELETE")));
});

test("whoever does not manage the pool sees the calendar, and disabled controls", async () => {
  answerRequests(LISTS);
  renderPage(<Calendar pool={{ ...POOL, may_manage: false, blocked_reason: "ask a pool admin" }} />);
  await screen.findByTestId("calendar");
  for (const name of [/Reserve slots/, /Plan maintenance/, /^Cancel: team blue/]) assert.ok(screen.getByRole("button", { name }).hasAttribute("disabled"), String(name));
});

test("an empty calendar says what belongs here", async () => {
  answerRequests({ "GET /api/v1/pools/lab/reservations": page([]), "GET /api/v1/pools/lab/maintenance": page([]) });
  renderPage(<Calendar pool={POOL} />);
  assert.ok(await screen.findByText("Nothing is planned"));
});

test("a reservation is sent as it was filled in, and a refusal stands at its field", async () => {
  const refusal = { status: 422, body: { code: "invalid", detail: "slots: 9 slots are more", errors: [{ pointer: "/slots", code: "invalid", message: "9 slots are more than pool 'lab' can reserve then" }] } };
  const sent = answerRequests({ ...LISTS, "GET /api/v1/pools/lab/teams": page([QUOTA]), "GET /api/v1/pools/lab/teams/team_1/projects": page([]), "POST /api/v1/pools/lab/reservations": refusal });
  const user = userEvent.setup();
  renderPage(<Calendar pool={POOL} />);
  await user.click(await screen.findByRole("button", { name: /Reserve slots/ }));
  const dialog = await screen.findByRole("dialog");
  const save = within(dialog).getByRole("button", { name: "Reserve slots" });
  assert.ok(save.hasAttribute("disabled"), "without a team");
  await user.click(within(dialog).getByRole("combobox", { name: "Team" }));
  await user.click(await screen.findByRole("option", { name: "blue" }));
  fireEvent.change(within(dialog).getByLabelText("Slots"), { target: { value: "9" } });
  await user.click(save);
  assert.ok(await within(dialog).findByText(/9 slots are more than pool/));
  assert.deepEqual(sent.find(({ method }) => method === "POST")?.body, { team: "team_1", slots: 9, duration_seconds: 28_800 });
});

test("maintenance needs a reason and nodes, or all of them", async () => {
  const sent = answerRequests({ ...LISTS, "POST /api/v1/pools/lab/maintenance": { status: 201, body: WINDOW } });
  const user = userEvent.setup();
  renderPage(<Calendar pool={POOL} />);
  await user.click(await screen.findByRole("button", { name: /Plan maintenance/ }));
  const dialog = await screen.findByRole("dialog");
  fireEvent.change(within(dialog).getByLabelText("Reason"), { target: { value: "new fans" } });
  assert.ok(within(dialog).getByRole("button", { name: "Plan maintenance" }).hasAttribute("disabled"), "no node is chosen");
  await user.click(within(dialog).getByRole("checkbox", { name: "Every node of the pool" }));
  await user.click(within(dialog).getByRole("button", { name: "Plan maintenance" }));
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "POST")?.body, { reason: "new fans", duration_seconds: 7200 }));
});

test("a quarantined node says why, and an admin releases it", async () => {
  const node = { ...NODE, status: "QUARANTINED" as const, quarantined_at: "2026-11-20T09:00:00Z", quarantine_reason: "attempts of 3 runs failed here" };
  const sent = answerRequests({ "POST /api/v1/pool/nodes/node_1/release": { body: NODE } });
  renderPage(<Table><Table.Tbody><QuarantineRow node={node} pool={POOL} columns={5} /></Table.Tbody></Table>);
  assert.ok(screen.getByText(/no new jobs start: attempts of 3 runs failed here/));
  await userEvent.setup().click(screen.getByRole("button", { name: "Release gpu-1" }));
  await waitFor(() => assert.ok(sent.some(({ method }) => method === "POST")));
});
