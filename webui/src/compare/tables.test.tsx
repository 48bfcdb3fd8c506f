import assert from "node:assert/strict";
import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { RunDetail } from "../api/schema.d.ts";
import { renderPage } from "../testing/render.tsx";
import { runStyle } from "./compare-view.ts";
import { ConfigDiff } from "./config-diff.tsx";
import { LiveMetrics } from "./live-metrics.ts";
import { ResultsTable } from "./results-table.tsx";
import { specDiff } from "./spec-diff.ts";
import type { ComparedRun } from "./use-compared-runs.ts";

const NOTHING_CHANGED = { max_staleness: null, max_concurrent_groups: null, learning_rate: null, engines: null };

/** A run of ten steps with this reward, or without any metric. */
function compared(slot: number, name: string, bound: number, reward: number | null): ComparedRun {
  const id = `run_${name}`;
  const live = new LiveMetrics({ fetch: () => new Promise(() => {}), subscribe: () => () => {}, later: () => () => {} });
  const x = Array.from({ length: 10 }, (_, index) => index + 1);
  if (reward !== null) live.store.merge([{ name: "reward/mean", unit: "", axis: "step", source: "trainer", attempt: 1, x, value: x.map(() => reward), at: x }]);
  const run = {
    id, name, kind: "rl", status: "SUCCEEDED", conditions: [], train_step: 10, total_train_steps: 10, started_at: null, ended_at: null, paused_seconds: 0,
    spec: { name, staleness: { max: bound } }, dataset: { ref: "letters@1" }, model: { name: "tiny" }, live: NOTHING_CHANGED,
  } as unknown as RunDetail;
  const charted = { id, name, ...runStyle(slot), live, clock: { origin: 0, gpuHoursAt: () => 0 } };
  return { ...charted, charted, run, names: [] };
}

const RUNS = [compared(0, "sync", 0, 0.5), compared(1, "async", 4, 0.75), compared(2, "new", 4, null)];

test("the baseline is the first row, and the others have their difference to it", async () => {
  const pinned: string[] = [];
  const { container } = renderPage(<ResultsTable runs={RUNS} baseline="run_async" onBaseline={(id) => void pinned.push(id)} onRemove={() => {}} />);
  const rows = [...container.querySelectorAll<HTMLElement>("[data-run]")];
  assert.deepEqual(rows.map((row) => row.dataset["run"]), ["run_async", "run_sync", "run_new"]);
  const reward = (row: HTMLElement) => row.querySelector("[data-column=reward]")?.textContent;
  assert.deepEqual(rows.map(reward), ["0.750", "0.500−0.250 lower than the baseline, worse", "–"]);
  assert.ok(within(rows[1]!).getByText("Synchronous, η = 0"));
  assert.ok(within(rows[0]!).getByText("Asynchronous, η = 4"));
  await userEvent.setup().click(screen.getByRole("button", { name: "Use sync as the baseline" }));
  assert.deepEqual(pinned, ["run_sync"]);
});

test("a column without a value of any run is left out, and one run alone has no baseline", () => {
  const { container } = renderPage(<ResultsTable runs={[RUNS[0]!]} baseline="run_sync" onBaseline={() => {}} onRemove={() => {}} />);
  assert.deepEqual([...container.querySelectorAll<HTMLElement>("[data-column]")].map((cell) => cell.dataset["column"]), ["reward", "to-reward"]);
  assert.equal(screen.queryByText("Baseline"), null);
});

test("a run is removed by its own button", async () => {
  const removed: string[] = [];
  renderPage(<ResultsTable runs={RUNS} baseline="run_sync" onBaseline={() => {}} onRemove={(id) => void removed.push(id)} />);
  await userEvent.setup().click(screen.getByRole("button", { name: "Remove async from the comparison" }));
  assert.deepEqual(removed, ["run_async"]);
});

test("the settings that differ are grouped, and values unlike the baseline's are marked", () => {
  const { container } = renderPage(<ConfigDiff runs={RUNS} rows={specDiff(RUNS.map(({ run }) => run))} baseline="run_sync" />);
  assert.ok(screen.getByText("1 field of the resolved specs"));
  const cells = [...container.querySelectorAll<HTMLElement>("[data-path='staleness.max'] td")];
  assert.deepEqual(cells.map((cell) => [cell.textContent, cell.dataset["differs"]]), [["0", "false"], ["4", "true"], ["4", "true"]]);
});

test("equal specs say so", () => {
  const same = [RUNS[1]!, RUNS[2]!];
  renderPage(<ConfigDiff runs={same} rows={specDiff(same.map(({ run }) => run))} baseline="run_async" />);
  assert.ok(screen.getByText(/are the same in every field/));
});
