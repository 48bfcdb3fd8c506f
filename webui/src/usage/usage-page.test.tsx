import assert from "node:assert/strict";
import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Usage, UsageSeries, UsageTotal } from "../api/schema.d.ts";
import { answerRequests, renderPage, type SentRequest } from "../testing/render.tsx";
import { OUTCOMES } from "./outcomes.ts";
import { UsagePage } from "./usage-page.tsx";

const TOTAL: UsageTotal = {
  runs: 1, slot_seconds: 7200, gpu_seconds: 3600, cost: 0, unpriced_slot_seconds: 7200, phases: { generate: 0, train: 0, wait: 0, sync: 0, evaluate: 0, other: 7200 },
  outcomes: { trained: 5400, dropped: 720, in_flight: 0, lost: 0, evaluated: 0, sync: 0, idle: 1080, unknown: 0 }, dropped: { stale: 720 },
  tokens: { generated: 1000, trained: 900, dropped: { stale: 80 }, lost: 20, in_flight: 0, unknown: 0, wasted: 100 },
};
const WINDOW = { since: "2026-11-24T00:00:00Z", until: "2026-11-26T00:00:00Z" };
const ROWS: Usage = { ...WINDOW, currency: "EUR", by: "run", data: [{ ...TOTAL, team: { id: "team_1", name: "blue" }, project: { id: "prj_1", name: "math" }, run: { id: "run_1", name: "gsm8k" } }], left_out: 3, total: TOTAL };
const SERIES: UsageSeries = {
  ...WINDOW, currency: "EUR", by: "outcome", bucket: "day", starts: ["2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z"],
  data: OUTCOMES.map((code) => ({ name: { id: code, name: code }, team: null, slot_seconds: [0, TOTAL.outcomes[code]], gpu_seconds: [0, 0], cost: [0, TOTAL.outcomes[code] / 3600] })),
};

/** Answers by path, whatever the window. */
function answer(rows: unknown, series: unknown, status = 200): SentRequest[] {
  const sent = answerRequests({});
  globalThis.fetch = async (input) => {
    const url = String(input);
    sent.push({ method: "GET", url, body: undefined });
    if (url.endsWith("/api/v1/me")) return new Response(JSON.stringify({ scopes: ["pool:read"] }), { headers: { "Content-Type": "application/json" } });
    if (url.endsWith("/api/v1/pools")) return new Response(JSON.stringify({ data: [], next_cursor: null }), { headers: { "Content-Type": "application/json" } });
    return new Response(JSON.stringify(url.includes("/series") ? series : rows), { status, headers: { "Content-Type": "application/json" } });
  };
  return sent;
}

test("the bars say what became of the time, and the rows whose it was", async () => {
  const sent = answer(ROWS, SERIES);
  renderPage(<UsagePage />, { path: "/usage?by=run" });
  const legend = await screen.findByTestId("usage-legend");
  assert.ok(within(legend).getByText(/Whole period: 2/));
  assert.equal(within(legend).getAllByRole("listitem").length, OUTCOMES.length);
  const table = await screen.findByTestId("usage");
  assert.equal(within(table).getByRole("link", { name: "gsm8k" }).getAttribute("href"), "/runs/run_1");
  assert.ok(within(table).getByRole("img", { name: "Trained 75.0 %, Dropped 10.0 %, Idle 15.0 %" }));
  assert.ok(within(table).getByTitle("80 dropped: stale, 20 lost to recoveries"));
  assert.ok(screen.getByText(/3 smaller rows are in the total and in the CSV file/));
  assert.match(screen.getByRole("link", { name: "CSV" }).getAttribute("href") ?? "", /by=run&format=csv$/);
  assert.ok(sent.some(({ url }) => url.includes("bucket=day")));
});

test("a bar is read under the pointer", async () => {
  answer(ROWS, SERIES);
  renderPage(<UsagePage />, { path: "/usage" });
  const bars = await screen.findByTestId("usage-bars");
  await userEvent.setup().hover(bars.children[0]!);
  assert.ok(screen.getByText(/^24 Nov: 0/));
});

test("an unused period says what would count", async () => {
  answer({ ...ROWS, data: [], left_out: 0 }, { ...SERIES, data: SERIES.data.map((part) => ({ ...part, slot_seconds: [0, 0] })) });
  renderPage(<UsagePage />, { path: "/usage?days=7" });
  assert.ok(await screen.findByText("No slot was used in this period"));
  assert.ok(screen.getByText("Nothing to list"));
});

test("each half of the page says its own failure", async () => {
  answer({ title: "Too many requests", status: 429, code: "throttled", detail: "wait 3 s" }, { title: "Too many requests", status: 429, code: "throttled", detail: "wait 3 s" }, 429);
  renderPage(<UsagePage />, { path: "/usage" });
  assert.equal((await screen.findAllByRole("alert")).length, 2);
  assert.ok(screen.queryByTestId("usage") === null);
});

test("with prices there is a cost, and what had no price is said", async () => {
  const priced = { ...TOTAL, cost: 2, unpriced_slot_seconds: 1800 };
  answer({ ...ROWS, data: [{ ...ROWS.data[0], cost: 2 }], total: priced }, SERIES);
  renderPage(<UsagePage />, { path: "/usage?measure=cost" });
  const legend = await screen.findByTestId("usage-legend");
  assert.ok(within(legend).getByText(/Whole period: 2\.00.EUR/));
  assert.ok(within(await screen.findByTestId("usage")).getByRole("columnheader", { name: "Cost" }));
  assert.ok(screen.getByText(/^30.min had no price/));
});
