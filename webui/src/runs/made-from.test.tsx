import assert from "node:assert/strict";
import { screen, within } from "@testing-library/react";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { MadeFrom } from "./made-from.tsx";

const ASKED = "GET /api/v1/runs?parent=run_1&limit=4";
const child = (id: string, name: string, relation: string) => ({ id, name, parent: { id: "run_1", name: "parent", relation } });
const answer = (data: unknown[]) => answerRequests({ [ASKED]: { body: { data, next_cursor: null, has_more: false } } });

test("each run that was made from this one says how", async () => {
  answer([child("run_3", "new reward", "fork"), child("run_2", "again", "retry")]);
  renderPage(<MadeFrom runId="run_1" />);
  const found = await screen.findByTestId("made-from");
  assert.equal(found.textContent, "made from it: fork new reward, retry again");
  assert.equal(within(found).getByRole("link", { name: "new reward" }).getAttribute("href"), "/runs/run_3");
});

test("more than three are a link to the list", async () => {
  answer(["a", "b", "c", "d"].map((name) => child(`run_${name}`, name, "clone")));
  renderPage(<MadeFrom runId="run_1" />);
  const found = await screen.findByTestId("made-from");
  assert.equal(within(found).queryByText("d"), null);
  assert.equal(within(found).getByRole("link", { name: "all" }).getAttribute("href"), "/runs?parent=run_1");
});
