import { fireEvent, screen, waitFor } from "@testing-library/react";
import assert from "node:assert/strict";
import { test } from "vitest";

import type { RunDetail } from "../../api/schema.d.ts";
import { answerRequests, renderPage } from "../../testing/render.tsx";
import SpecView from "./spec-view.tsx";

const RUN = { id: "run_1", name: "good", spec: { name: "good", seed: 3 }, submitted_spec: { name: "good", notes: "only here", seed: 3 } } as unknown as RunDetail;
const me = (...scopes: string[]) => ({ "GET /api/v1/me": { body: { role: "", scopes } } });

test("the spec of a run is saved as a template, without its name and notes", async () => {
  const sent = answerRequests({
    ...me("runs:write"), "GET /api/v1/run-templates?limit=200": { body: { data: [], next_cursor: null, has_more: false } },
    "POST /api/v1/run-templates": { status: 201, body: { ref: "like-good@1" } },
  });
  renderPage(<SpecView run={RUN} />);
  fireEvent.click(await screen.findByTestId("save-template"));
  fireEvent.change(await screen.findByLabelText(/Name/), { target: { value: "like-good" } });
  fireEvent.click(screen.getByRole("button", { name: "Save template" }));
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "POST")?.body, { name: "like-good", description: "", spec: { seed: 3 }, for_team: false }));
  await waitFor(() => assert.equal(screen.queryByRole("dialog") === null, true));
});

test("a viewer copies the spec and is not offered to save it", async () => {
  const sent = answerRequests(me("runs:read"));
  renderPage(<SpecView run={RUN} />);
  await waitFor(() => assert.equal(sent.length, 1));
  assert.equal(screen.queryByTestId("save-template") === null, true);
  screen.getByRole("button", { name: "Copy as YAML" });
});
