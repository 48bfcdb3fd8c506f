import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { DatasetsPage } from "./datasets-page.tsx";

const LIST = "GET /api/v1/datasets?limit=100";
const as = (role: string) => ({ "GET /api/v1/me": { body: { role, scopes: [] } } });
const dataset = (name: string) => ({ id: `ds_${name}`, name, description: "", latest: null, versions: [], aliases: {}, created_at: "2026-01-01T00:00:00Z" });
const list = (names: string[], next: string | null = null) => ({ body: { data: names.map(dataset), next_cursor: next, has_more: next !== null } });
const upload = () => screen.queryAllByRole("link", { name: "Upload dataset" });

test("datasets after the first page are fetched on demand", async () => {
  answerRequests({ ...as("editor"), [LIST]: list(["one"], "after-one"), "GET /api/v1/datasets?cursor=after-one&limit=100": list(["two"]) });
  renderPage(<DatasetsPage />);
  assert.ok(await screen.findByRole("link", { name: "one" }));
  await userEvent.setup().click(screen.getByRole("button", { name: "Show more" }));
  assert.ok(await screen.findByRole("link", { name: "two" }));
  assert.equal(screen.queryByRole("button", { name: "Show more" }), null);
});

test("a project without datasets has one way to add one", async () => {
  answerRequests({ ...as("editor"), [LIST]: list([]) });
  renderPage(<DatasetsPage />);
  assert.ok(await screen.findByText("No datasets yet"));
  assert.equal(upload().length, 1);
});

test("a viewer has no button that uploads", async () => {
  answerRequests({ ...as("viewer"), [LIST]: list(["one"]) });
  renderPage(<DatasetsPage />);
  assert.ok(await screen.findByRole("link", { name: "one" }));
  assert.equal(upload().length, 0);
});

test("a list that cannot be loaded says so and can be asked for again", async () => {
  answerRequests({ ...as("editor"), [LIST]: { status: 500, body: { title: "Internal error", status: 500, code: "internal", detail: "no" } } });
  renderPage(<DatasetsPage />);
  assert.ok(await screen.findByRole("button", { name: "Try again" }));
  assert.equal(screen.queryByText("No datasets yet"), null);
});
