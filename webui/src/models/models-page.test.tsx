import assert from "node:assert/strict";
import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { ModelsPage } from "./models-page.tsx";

const MODELS = "GET /api/v1/models?limit=100";
const IMPORTS = "GET /api/v1/model-imports?limit=20";
const IMPORT = "POST /api/v1/model-imports";
const as = (role: string) => ({ "GET /api/v1/me": { body: { role, scopes: [] } } });
const page = (data: object[], next: string | null = null) => ({ body: { data, next_cursor: next, has_more: next !== null } });
const model = (name: string) => ({
  id: `bm_${name}`, name, ref: `${name}@1`, state: "READY", family: "qwen3", parameters: 1000, bytes: 2000, source: "upload", origin: {}, path: "", sha256: "ab".repeat(32), message: "",
  errors: [], created_at: "2026-01-01T00:00:00Z",
});
const entry = (changes: object) => ({
  id: "mi_1", name: "tiny", hub: "https://hub.example", hub_model: "acme/tiny", revision: "main", commit: "c0ffee".repeat(6), state: "QUEUED", message: "", model: null,
  bytes_total: 0, bytes_done: 0, errors: [], created_at: "2026-01-01T00:00:00Z", ...changes,
});

async function openHubForm(user: ReturnType<typeof userEvent.setup>): Promise<HTMLElement> {
  await user.click(await screen.findByRole("button", { name: "Register model" }));
  const dialog = await screen.findByRole("dialog");
  await user.click(within(dialog).getByText("Import from a hub"));
  return dialog;
}

test("a model is imported from the hub under the name that it has there", async () => {
  const sent = answerRequests({ ...as("editor"), [MODELS]: page([]), [IMPORTS]: page([]), [IMPORT]: { status: 201, body: entry({}) } });
  renderPage(<ModelsPage />);
  const user = userEvent.setup();
  const dialog = await openHubForm(user);
  const button = within(dialog).getByRole<HTMLButtonElement>("button", { name: "Import" });
  await user.type(within(dialog).getByLabelText(/^Model/), "tiny");
  assert.equal(button.disabled, true, "a model of a hub has an owner");
  await user.clear(within(dialog).getByLabelText(/^Model/));
  await user.type(within(dialog).getByLabelText(/^Model/), "acme/tiny");
  assert.equal(within(dialog).getByLabelText<HTMLInputElement>(/^Name/).value, "tiny");
  await user.type(within(dialog).getByLabelText(/^Secret/), "HF_TOKEN");
  await user.click(button);
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "POST")?.body, { name: "tiny", model: "acme/tiny", revision: "main", secret: "HF_TOKEN" }));
  await waitFor(() => assert.equal(screen.queryByRole("dialog"), null));
  assert.ok(sent.filter(({ url }) => url.includes("/model-imports?")).length > 1, "the imports are fetched again");
});

test("an installation without a hub says who sets one, and the form stays", async () => {
  const refusal = { status: 409, body: { title: "Conflict", status: 409, code: "no_hub", detail: "no hub is configured; whoever runs the control plane sets OOLONG_HUB_URL" } };
  answerRequests({ ...as("editor"), [MODELS]: page([]), [IMPORTS]: page([]), [IMPORT]: refusal });
  renderPage(<ModelsPage />);
  const user = userEvent.setup();
  const dialog = await openHubForm(user);
  await user.type(within(dialog).getByLabelText(/^Model/), "acme/tiny");
  await user.click(within(dialog).getByRole("button", { name: "Import" }));
  assert.ok(await within(dialog).findByText(/sets OOLONG_HUB_URL/));
  assert.equal(within(dialog).getByLabelText<HTMLInputElement>(/^Model/).value, "acme/tiny");
});

test("an import under way shows how much has arrived, and canceling it is one click", async () => {
  const sent = answerRequests({
    ...as("editor"), [MODELS]: page([]), [IMPORTS]: page([entry({ state: "RUNNING", bytes_total: 200, bytes_done: 50 })]), "DELETE /api/v1/model-imports/mi_1": { status: 204 },
  });
  renderPage(<ModelsPage />);
  const bar = await screen.findByRole("progressbar", { name: "Fetched of acme/tiny" });
  assert.equal(bar.getAttribute("aria-valuenow"), "25");
  await userEvent.setup().click(screen.getByRole("button", { name: "Cancel the import of acme/tiny" }));
  await waitFor(() => assert.ok(sent.some(({ method }) => method === "DELETE")));
});

test("models after the first page are fetched on demand, and a viewer registers none", async () => {
  answerRequests({ ...as("viewer"), [MODELS]: page([model("one")], "after-one"), "GET /api/v1/models?cursor=after-one&limit=100": page([model("two")]), [IMPORTS]: page([]) });
  renderPage(<ModelsPage />);
  assert.ok(await screen.findByText("one@1"));
  assert.equal(screen.queryByRole("button", { name: "Register model" }), null);
  await userEvent.setup().click(screen.getByRole("button", { name: "Show more" }));
  assert.ok(await screen.findByText("two@1"));
});
