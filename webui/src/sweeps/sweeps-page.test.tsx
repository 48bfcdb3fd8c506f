import { screen } from "@testing-library/react";
import assert from "node:assert/strict";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { SweepsPage } from "./sweeps-page.tsx";

test("a project without sweeps offers one way to the first", async () => {
  answerRequests({ "GET /api/v1/me": { body: { role: "editor", scopes: [] } }, "GET /api/v1/sweeps?limit=50": { body: { data: [], next_cursor: null, has_more: false } } });
  renderPage(<SweepsPage />);
  await screen.findByText("No sweeps yet");
  assert.equal((await screen.findAllByRole("link", { name: "New sweep" })).length, 1);
});
