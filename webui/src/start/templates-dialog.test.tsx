import { fireEvent, screen, waitFor } from "@testing-library/react";
import assert from "node:assert/strict";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { withTemplate } from "./merge-patch.ts";
import TemplatesDialog from "./templates-dialog.tsx";

const TEMPLATE = {
  id: "rt_1", name: "nightly", ref: "nightly@2", description: "small model", of_team: true, spec: { rollout: { engines: 2 } },
  versions: [{ number: 1, spec: { rollout: { engines: 1 } }, created_at: "" }, { number: 2, spec: { rollout: { engines: 2 } }, created_at: "" }], created_by: "ada", created_at: "2026-11-01T00:00:00Z",
};
const LIST = { body: { data: [TEMPLATE], next_cursor: null, has_more: false } };
const PATH = "GET /api/v1/run-templates?limit=200";

test("a template is used, and its values replace those of the spec", async () => {
  const used: object[] = [];
  answerRequests({ [PATH]: LIST });
  renderPage(<TemplatesDialog spec={{ seed: 3 }} readOnly onUse={(spec) => used.push(spec)} onClose={() => {}} />);
  fireEvent.click(await screen.findByRole("button", { name: "Use nightly" }));
  assert.deepEqual(used, [{ seed: 3, rollout: { engines: 2 } }]);
  assert.equal(screen.queryByRole("button", { name: "Delete nightly" }), null);
  assert.deepEqual(withTemplate({ name: "a", rollout: { engines: 1, group_size: 4 }, seed: 3 }, { rollout: { engines: 2 }, seed: null }), { name: "a", rollout: { engines: 2, group_size: 4 } });
});

test("an older version is chosen and used", async () => {
  const used: object[] = [];
  answerRequests({ [PATH]: LIST });
  renderPage(<TemplatesDialog spec={{}} readOnly onUse={(spec) => used.push(spec)} onClose={() => {}} />);
  fireEvent.click(await screen.findByRole("combobox", { name: "Version of nightly" }));
  fireEvent.click(await screen.findByRole("option", { name: "Version 1" }));
  await screen.findByText("nightly@1");
  fireEvent.click(screen.getByRole("button", { name: "Use nightly" }));
  assert.deepEqual(used, [{ rollout: { engines: 1 } }]);
});

test("a template takes away what its values exclude", () => {
  const spec = { model: { base_model: "tiny", lora: { rank: 8 } }, reward: { name: "math", options: { a: 1 }, scale: 2 } };
  assert.deepEqual(withTemplate(spec, { model: { checkpoint: "best" }, reward: { function: "close@1" } }), { model: { lora: { rank: 8 }, checkpoint: "best" }, reward: { scale: 2, function: "close@1" } });
  assert.deepEqual(withTemplate(spec, { model: { base_model: "small" }, reward: { name: "math", scale: 1 } }), { model: { base_model: "small", lora: { rank: 8 } }, reward: { name: "math", options: { a: 1 }, scale: 1 } });
});

test("a new name makes a template, a known one a version", async () => {
  const sent = answerRequests({ [PATH]: LIST, "POST /api/v1/run-templates": { status: 201, body: TEMPLATE }, "POST /api/v1/run-templates/rt_1/versions": { status: 201, body: TEMPLATE } });
  renderPage(<TemplatesDialog spec={{ kind: "rl" }} readOnly={false} onUse={() => {}} onClose={() => {}} />);
  fireEvent.change(await screen.findByLabelText(/Name/), { target: { value: "nightly" } });
  fireEvent.click(screen.getByRole("button", { name: "Add version" }));
  await waitFor(() => assert.deepEqual(sent.find(({ url }) => url.endsWith("/versions"))?.body, { spec: { kind: "rl" } }));
  await waitFor(() => assert.equal((screen.getByLabelText(/Name/) as HTMLInputElement).value, ""));
  fireEvent.change(screen.getByLabelText(/Name/), { target: { value: "weekly" } });
  fireEvent.click(screen.getByRole("button", { name: "Save template" }));
  await waitFor(() => assert.deepEqual(sent.find(({ method, url }) => method === "POST" && url.endsWith("/run-templates"))?.body, { name: "weekly", description: "", spec: { kind: "rl" }, for_team: false }));
});

test("a template is deleted after its effect was said", async () => {
  const sent = answerRequests({ [PATH]: LIST, "DELETE /api/v1/run-templates/rt_1": { status: 204 } });
  renderPage(<TemplatesDialog spec={{}} readOnly={false} onUse={() => {}} onClose={() => {}} />);
  fireEvent.click(await screen.findByRole("button", { name: "Delete nightly" }));
  screen.getByText(/All 2 versions are deleted/);
  fireEvent.click(screen.getByRole("button", { name: "Delete template" }));
  await waitFor(() => assert.ok(sent.some(({ method }) => method === "DELETE")));
});
