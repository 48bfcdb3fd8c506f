import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { ColumnStatistics, Version } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { ColumnsPanel } from "./columns-panel.tsx";
import { distinctText, frequentText, rangeText } from "./columns-text.ts";

const URL = "GET /api/v1/dataset-versions/dv_1/statistics?limit=50";
const VERSION = { id: "dv_1", ref: "sums@2", rows: 1000 } as Version;
const ANSWER: ColumnStatistics = {
  name: "answer", rows: 1000, missing: 250, distinct: 5000, distinct_exact: false, shortest: 1, median: 2, p95: 3, longest: 4321, mean: 2.1,
  numeric: 375, minimum: -2, maximum: 40, frequent: [{ value: "<b>7</b>", rows: 90 }], frequent_exact: false,
};
const measured = (state: string, columns: ColumnStatistics[]) => ({ body: { data: [{ id: "m", state, columns }], next_cursor: null, has_more: false } });
const show = () => renderPage(<ColumnsPanel version={VERSION} />);

test("a column shows its missing values, estimate, lengths, numbers and values as text", async () => {
  answerRequests({ [URL]: measured("DONE", [ANSWER]) });
  show();
  const row = await screen.findByRole("row", { name: /^Answer/ });
  for (const words of ["250", "25", "about 5,000", "1, 2, 3, 4,321", "-2", "50", "<b>7</b>", "at least 90 rows"]) assert.ok(row.textContent?.replaceAll("−", "-").includes(words), `${words}: ${row.textContent}`);
  assert.equal(row.querySelector("b"), null);
});

test("without a measurement the tab says what would be here and leads to where it is started", async () => {
  answerRequests({ [URL]: { body: { data: [], next_cursor: null, has_more: false } } });
  show();
  assert.ok(await screen.findByText("Not measured yet"));
  await userEvent.setup().click(screen.getByRole("button", { name: "Go to token lengths" }));
});

test("a measurement that failed says why, and leads to where it is repeated", async () => {
  const failed = { id: "m", state: "FAILED", message: "tokenizer.json cannot be loaded", columns: [] };
  answerRequests({ [URL]: { body: { data: [failed], next_cursor: null, has_more: false } } });
  show();
  assert.ok(await screen.findByText("tokenizer.json cannot be loaded"));
  assert.ok(screen.getByRole("button", { name: "Go to token lengths" }));
});

test("a measurement under way is awaited, and a failed request can be repeated", async () => {
  answerRequests({ [URL]: measured("RUNNING", []) });
  const first = show();
  assert.ok(await screen.findByText("The rows are being measured"));
  first.unmount();
  answerRequests({ [URL]: { status: 500, body: { title: "Internal error", status: 500, code: "internal", detail: "no" } } });
  show();
  assert.ok(await screen.findByRole("button", { name: "Try again" }));
});

test("exact counts, constant numbers and columns of words have their own words", () => {
  assert.equal(distinctText({ distinct: 12, distinct_exact: true }), "12");
  assert.equal(frequentText({ rows: 1 }, { frequent_exact: true }), "1 row");
  assert.equal(rangeText({ ...ANSWER, numeric: 0, minimum: null, maximum: null }), null);
  assert.equal(rangeText({ rows: 3, missing: 0, numeric: 3, minimum: 7, maximum: 7 }), "7");
});
