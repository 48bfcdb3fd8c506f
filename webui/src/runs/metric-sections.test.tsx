import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, test } from "vitest";

import { renderPage } from "../testing/render.tsx";
import { MetricSections } from "./metric-sections.tsx";
import { MetricsStore } from "./metrics-store.ts";
import { RL_CHARTS } from "./run-charts.ts";

beforeEach(() => localStorage.clear());

function sections() {
  const metrics = new MetricsStore((then) => then());
  metrics.add({ axis: "step", x: 1, attempt: 1, values: { "gate/stalls": 2 } }, 1_700_000_000);
  return renderPage(<MetricSections planned={RL_CHARTS} metrics={metrics} chart={(plan) => <p key={plan.id}>{plan.id}</p>} />);
}

test("a section that was folded stays folded, and the metrics without a place are folded at first", async () => {
  const { unmount } = sections();
  assert.ok(screen.getByText("entropy"));
  assert.equal(screen.queryByText("gate/stalls"), null);
  await userEvent.click(screen.getByRole("button", { name: /Optimization/, expanded: true }));
  await userEvent.click(screen.getByRole("button", { name: /All other metrics/, expanded: false }));
  assert.equal(screen.queryByText("entropy"), null);
  assert.ok(screen.getByText("gate/stalls"));
  unmount();
  sections();
  assert.equal(screen.queryByText("entropy"), null);
});

test("a search looks into folded sections too", async () => {
  sections();
  await userEvent.type(screen.getByLabelText("Search all metrics"), "gate stalls");
  assert.ok(screen.getByText("gate/stalls") && screen.getByText("1 chart"));
  assert.equal(screen.queryByText("entropy"), null);
  await userEvent.type(screen.getByLabelText("Search all metrics"), "zzz");
  assert.ok(screen.getByText("No metric of this run matches"));
});
