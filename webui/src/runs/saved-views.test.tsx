import { fireEvent, screen, waitFor } from "@testing-library/react";
import assert from "node:assert/strict";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { isSameView, searchOf, viewQuery } from "./saved-view-query.ts";
import { SavedViews } from "./saved-views.tsx";

const view = (fields: object = {}) => ({ id: "v1", name: "failed, by reward", query: { status: ["FAILED"], tag: ["a", "b"] }, shared: true, columns: null, owner: "ada", created_at: "2026-11-01T00:00:00Z", updated_at: "2026-11-01T00:00:00Z", ...fields });
const page = (...data: object[]) => ({ body: { data, next_cursor: null, has_more: false } });
const ME = { body: { user: { username: "ada" }, role: "editor", scopes: [] } };

test("an address and a view are the same whatever the order of the filters", () => {
  const search = new URLSearchParams("tag=b&status=FAILED&tag=a&tab=x");
  assert.deepEqual(viewQuery(search), { status: ["FAILED"], tag: ["b", "a"] });
  assert.equal(isSameView(search, view()), true);
  assert.equal(isSameView(new URLSearchParams("status=FAILED"), view()), false);
  assert.equal(isSameView(new URLSearchParams(), view({ query: {} })), false);
  assert.equal(searchOf(view()).toString(), "status=FAILED&tag=a&tag=b");
});

test("a view with columns brings them, and is another one when they are changed", () => {
  const withColumns = view({ columns: ["status", "model"] });
  const search = searchOf(withColumns);
  assert.equal(search.get("columns"), "status,model");
  assert.equal(isSameView(search, withColumns), true);
  search.set("columns", "status");
  assert.equal(isSameView(search, withColumns), false);
  assert.equal(isSameView(search, view()), true);
  assert.equal(isSameView(new URLSearchParams("columns=model"), view({ query: {}, columns: ["model"] })), true);
});

test("a view is opened, and the filters and columns of the page are saved under a name", async () => {
  const opened: string[] = [];
  const sent = answerRequests({ "GET /api/v1/saved-views?limit=200": page(view({ owner: "bob" })), "GET /api/v1/me": ME, "POST /api/v1/saved-views": { status: 201, body: view() } });
  renderPage(<SavedViews search={new URLSearchParams("status=PAUSED")} columns={["status", "model"]} onOpen={(search) => opened.push(search.toString())} />);
  fireEvent.click(screen.getByRole("button", { name: "Views" }));
  fireEvent.click(await screen.findByRole("menuitem", { name: /failed, by reward.*bob/ }));
  assert.deepEqual(opened, ["status=FAILED&tag=a&tag=b"]);
  fireEvent.click(screen.getByRole("button", { name: "Views" }));
  fireEvent.click(await screen.findByRole("menuitem", { name: "Save this view" }));
  fireEvent.change(await screen.findByLabelText(/Name/), { target: { value: "paused" } });
  fireEvent.click(screen.getByRole("button", { name: "Save view" }));
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "POST")?.body, { name: "paused", query: { status: ["PAUSED"] }, shared: false, columns: ["status", "model"] }));
});

test("the owner deletes the view that the page shows, after its effect was said", async () => {
  const sent = answerRequests({ "GET /api/v1/saved-views?limit=200": page(view()), "GET /api/v1/me": ME, "DELETE /api/v1/saved-views/v1": { status: 204 } });
  renderPage(<SavedViews search={new URLSearchParams("status=FAILED&tag=a&tag=b")} columns={["status"]} onOpen={() => {}} />);
  fireEvent.click(await screen.findByRole("button", { name: "failed, by reward" }));
  fireEvent.click(await screen.findByRole("menuitem", { name: "Delete “failed, by reward”" }));
  await screen.findByText(/Everybody in the project loses this view/);
  fireEvent.click(screen.getByRole("button", { name: "Delete view" }));
  await waitFor(() => assert.ok(sent.some(({ method }) => method === "DELETE")));
});

test("the owner renames the view that the page shows, and its filters stay", async () => {
  const sent = answerRequests({ "GET /api/v1/saved-views?limit=200": page(view()), "GET /api/v1/me": ME, "PATCH /api/v1/saved-views/v1": { body: view({ name: "bad runs" }) } });
  renderPage(<SavedViews search={new URLSearchParams("status=FAILED&tag=a&tag=b")} columns={["status"]} onOpen={() => {}} />);
  fireEvent.click(await screen.findByRole("button", { name: "failed, by reward" }));
  fireEvent.click(await screen.findByRole("menuitem", { name: "Rename “failed, by reward”" }));
  const submit = await screen.findByRole("button", { name: "Rename view" });
  assert.equal(submit.hasAttribute("disabled"), true); // the name is still the same
  await screen.findByText(/Everybody in the project sees the new name/);
  fireEvent.change(screen.getByLabelText(/Name/), { target: { value: " bad runs " } });
  fireEvent.click(submit);
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "PATCH")?.body, { name: "bad runs" }));
});

test("the view of somebody else offers neither a new name nor deletion", async () => {
  answerRequests({ "GET /api/v1/saved-views?limit=200": page(view({ owner: "bob" })), "GET /api/v1/me": ME });
  renderPage(<SavedViews search={new URLSearchParams("status=FAILED&tag=a&tag=b")} columns={["status"]} onOpen={() => {}} />);
  fireEvent.click(await screen.findByRole("button", { name: "failed, by reward" }));
  await screen.findByRole("menuitem", { name: "Save this view" });
  assert.equal(screen.queryByRole("menuitem", { name: /Rename|Delete/ }), null);
});
