import assert from "node:assert/strict";
import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Delivery, Webhook } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { WebhooksTab } from "./webhooks-tab.tsx";

const HOOK: Webhook = {
  id: "whk_1", name: "chat", url: "https://example.org/hook", events: ["run.*"], enabled: true, disabled_reason: "", failing_since: null,
  previous_secret_until: null, created_by: "alice", created_at: "2026-01-01T00:00:00Z", updated_at: "2026-01-01T00:00:00Z",
};
const DELIVERY: Delivery = {
  id: "whd_1", webhook: "whk_1", event: { id: "msg_1", type: "run.failed", at: "2026-01-01T00:00:00Z", data: { run: "<b>mine</b>" } }, state: "FAILED",
  message: "status 500", tries: 2, next_at: null, created_at: "2026-01-01T00:00:00Z", ended_at: "2026-01-02T00:00:00Z",
  log: [
    { number: 1, at: "2026-01-01T00:00:01Z", status: null, milliseconds: 5000, error: "timed out", excerpt: "" },
    { number: 2, at: "2026-01-01T00:00:06Z", status: 500, milliseconds: 12, error: "status 500", excerpt: "<h1>oops</h1>" },
  ],
};
const page = (data: unknown[]) => ({ body: { data, next_cursor: null, has_more: false } });
const LIST = "GET /api/v1/webhooks?limit=100";
const LOG = "GET /api/v1/webhooks/whk_1/deliveries?limit=50";

test("without webhooks the tab says what they are for", async () => {
  answerRequests({ [LIST]: page([]) });
  renderPage(<WebhooksTab />);
  assert.ok(await screen.findByText("No webhooks yet"));
  assert.ok(screen.getByRole("button", { name: "New webhook" }));
});

test("a delivery opens to each try with the answer as text, and is sent again", async () => {
  const sent = answerRequests({ [LIST]: page([HOOK]), [LOG]: page([DELIVERY]), "POST /api/v1/webhook-deliveries/whd_1/redeliver": { status: 202, body: DELIVERY } });
  renderPage(<WebhooksTab />);
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: /^Tries of run.failed/ }));
  const tries = within(screen.getByTestId("tries"));
  assert.ok(tries.getByText(/no answer · 5000 ms/));
  assert.ok(tries.getByText("<h1>oops</h1>"), "rendered as text");
  assert.ok(tries.getByText(/<b>mine<\/b>/));
  await user.click(screen.getByRole("button", { name: /^Redeliver run.failed/ }));
  await waitFor(() => assert.ok(sent.some(({ url }) => url.endsWith("/redeliver"))));
});

test("a webhook is made with chosen events, and its secret is shown once", async () => {
  const sent = answerRequests({ [LIST]: page([]), "POST /api/v1/webhooks": { status: 201, body: { ...HOOK, secret: "whsec_once" } } });
  renderPage(<WebhooksTab />);
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "New webhook" }));
  fireEvent.change(screen.getByLabelText(/^Name/), { target: { value: "chat" } });
  fireEvent.change(screen.getByLabelText(/^URL/), { target: { value: "https://example.org/hook" } });
  await user.click(screen.getByRole("checkbox", { name: "Runs: all" }));
  assert.ok(screen.getByRole("button", { name: "Create webhook" }).hasAttribute("disabled"), "no event is chosen");
  await user.click(screen.getByRole("checkbox", { name: "run.failed" }));
  await user.click(screen.getByRole("checkbox", { name: "Alerts: all" }));
  await user.click(screen.getByRole("button", { name: "Create webhook" }));
  assert.equal((await screen.findByTestId("shown-once")).textContent, "whsec_once");
  assert.deepEqual(sent.find(({ method }) => method === "POST")?.body, { name: "chat", url: "https://example.org/hook", events: ["run.failed", "alert.*"] });
});

test("an address that is not allowed is an error at the URL", async () => {
  answerRequests({ [LIST]: page([]), "POST /api/v1/webhooks": { status: 422, body: { title: "Invalid", status: 422, code: "address_blocked", detail: "10.0.0.1 is private", errors: [{ pointer: "/url", code: "address_blocked", message: "10.0.0.1 is private" }] } } });
  renderPage(<WebhooksTab />);
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "New webhook" }));
  fireEvent.change(screen.getByLabelText(/^Name/), { target: { value: "chat" } });
  fireEvent.change(screen.getByLabelText(/^URL/), { target: { value: "https://10.0.0.1/" } });
  await user.click(screen.getByRole("button", { name: "Create webhook" }));
  assert.ok(await screen.findByText("10.0.0.1 is private"));
  assert.ok(screen.getByLabelText(/^URL/).getAttribute("aria-invalid"));
});
