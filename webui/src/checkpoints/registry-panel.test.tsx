import assert from "node:assert/strict";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { RegistryPanel } from "./registry-panel.tsx";

const show = (path = "/checkpoints") => renderPage(<RegistryPanel aliases={[]} showDialog={() => {}} />, { path });
const ME = { "GET /api/v1/me": { body: { scopes: ["checkpoints:read", "checkpoints:write", "runs:write"] } } };
const row = (id: string, given: object = {}) => ({
  id, run: { id: "run_1", name: "letters" }, step: 20, kind: "training", state: "STORED", bytes: 1_000, metrics: { reward_mean: 0.5, other: null },
  final: false, pinned: false, aliases: [], created_at: "2026-01-01T00:00:00Z", ...given,
});

test("an empty registry says what belongs there and how it gets there", async () => {
  answerRequests({ ...ME, "GET /api/v1/checkpoints?limit=50": { body: { data: [], has_more: false, next_cursor: null } } });
  show();
  assert.ok(await screen.findByText("No checkpoints yet"));
  assert.ok(screen.getByRole("link", { name: "Start a run" }));
});

test("a filter without results can be cleared", async () => {
  answerRequests({ ...ME, "GET /api/v1/checkpoints?run=nobody&limit=50": { body: { data: [], has_more: false, next_cursor: null } } });
  show("/checkpoints?run=nobody");
  assert.ok(await screen.findByText("No matching checkpoints"));
  assert.equal(screen.getByRole("link", { name: "Clear filters" }).getAttribute("href"), "/checkpoints");
});

test("a failing list names the request and offers another try", async () => {
  let fails = true;
  answerRequests({
    ...ME,
    "GET /api/v1/checkpoints?limit=50": () => (fails ? { status: 500, body: { title: "Internal Server Error", code: "internal", detail: "a bug", request_id: "req_7" } } : { body: { data: [row("ckpt_1")], has_more: false, next_cursor: null } }),
  });
  show();
  assert.ok(await screen.findByText("Request req_7"));
  fails = false;
  await userEvent.setup().click(screen.getByRole("button", { name: "Try again" }));
  assert.ok(await screen.findByRole("link", { name: "letters, step 20" }));
});

test("the next page is asked for by its cursor", async () => {
  const sent = answerRequests({
    ...ME,
    "GET /api/v1/checkpoints?limit=50": { body: { data: [row("ckpt_2", { aliases: ["best"], pinned: true })], has_more: true, next_cursor: "c1" } },
    "GET /api/v1/checkpoints?cursor=c1&limit=50": { body: { data: [row("ckpt_1", { state: "DELETED" })], has_more: false, next_cursor: null } },
  });
  show();
  const user = userEvent.setup();
  assert.ok(await screen.findByText("best"));
  assert.ok(screen.getByLabelText("Pinned: retention never deletes it"));
  await user.click(screen.getByRole("button", { name: "Older" }));
  await waitFor(() => assert.ok(screen.getByRole("table").querySelector("[data-status=DELETED]")));
  assert.ok(sent.some(({ url }) => url.includes("cursor=c1")));
  assert.equal(screen.queryByLabelText(/^Actions on letters/), null, "nothing can be done with a deleted checkpoint");
  await user.click(screen.getByRole("button", { name: "Newest" }));
  assert.ok(await screen.findByText("best"));
});
