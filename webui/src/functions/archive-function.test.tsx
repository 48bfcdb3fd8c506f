import assert from "node:assert/strict";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { ArchiveFunction } from "./archive-function.tsx";
import { FunctionsPage } from "./functions-page.tsx";
import type { FunctionData } from "./types.ts";

const ENTRY: FunctionData = { id: "fn_1", name: "close", kind: "reward", description: "", created_by: "ann", created_at: "2026-01-01T00:00:00Z", archived_at: null, versions: [] };
const ARCHIVED = { ...ENTRY, archived_at: "2026-02-01T00:00:00Z" };
const EMPTY = { body: { data: [], next_cursor: null, has_more: false } };

test("archiving says what stays, and sends it", async () => {
  const sent = answerRequests({ "PATCH /api/v1/functions/fn_1": { body: ARCHIVED } });
  renderPage(<ArchiveFunction entry={ENTRY} />);
  const user = userEvent.setup();
  await user.click(screen.getByRole("button", { name: "Archive" }));
  assert.ok(screen.getByText(/Runs, drafts, sweeps and gates that name it continue/));
  await user.click(screen.getByRole("button", { name: "Archive function" }));
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "PATCH")?.body, { archived: true }));
});

test("a refused deletion names the runs", async () => {
  const detail = "'close' is named by runs run_1, run_2. It stays for their history: archive it instead";
  answerRequests({ "DELETE /api/v1/functions/fn_1": { status: 409, body: { title: "Conflict", status: 409, code: "in_use", detail } } });
  renderPage(<ArchiveFunction entry={ENTRY} />);
  const user = userEvent.setup();
  await user.click(screen.getByRole("button", { name: "Delete" }));
  await user.click(screen.getByRole("button", { name: "Delete function" }));
  assert.ok(await screen.findByText(detail));
});

test("an archived function is restored with one click", async () => {
  const sent = answerRequests({ "PATCH /api/v1/functions/fn_1": { body: ENTRY } });
  renderPage(<ArchiveFunction entry={ARCHIVED} />);
  await userEvent.setup().click(screen.getByRole("button", { name: "Restore" }));
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "PATCH")?.body, { archived: false }));
});

test("archived functions have a list of their own, which says when it is empty", async () => {
  const sent = answerRequests({ "GET /api/v1/me": { body: { role: "editor", scopes: [] } }, "GET /api/v1/functions?archived=only&limit=100": EMPTY });
  renderPage(<FunctionsPage />, { path: "/functions?show=archived" });
  assert.ok(await screen.findByText("No archived functions"));
  assert.ok(sent.some(({ url }) => url.includes("archived=only")));
});
