import { fireEvent, screen } from "@testing-library/react";
import assert from "node:assert/strict";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { SimulationPanel } from "./simulation-panel.tsx";

const layout = (fields: object = {}) => ({
  change: "", engines: 3, trainer_ranks: 1, max_staleness: 4, groups_per_step: 8, step_seconds: 2.5, trained_tokens_per_second: 1200, trainer_idle_frac: 0.04,
  rollout_idle_frac: 0.01, publish_frac: 0.01, paused_frac: 0.02, staleness_mean: 1.5, staleness_p95: 3, staleness_max: 4, ...fields,
});
const FOUND = {
  devices: 4, source: { kind: "measured", gpu: null, from_runs: 2, lengths: "measured" }, times: {}, lengths: { mean: 60, spread: 0.5, limit: 112, prompt: 10 },
  given: layout({ engines: 1, trainer_ranks: 3, trained_tokens_per_second: 700 }), best: layout(), splits: [layout({ engines: 2, trainer_ranks: 2 })],
  staleness: [layout({ max_staleness: 0 })], batches: [], sensitivity: [layout({ change: "decode steps 20 % slower" })], sufficient_staleness: 2, run_seconds: 250, gpu_hours: 0.28, advice: [],
};

test("the fastest split is shown with its source and goes into the spec", async () => {
  const used: number[][] = [];
  const spec = { kind: "rl" };
  const sent = answerRequests({ "POST /api/v1/runs/simulate": { body: FOUND } });
  renderPage(<SimulationPanel spec={spec} canSimulate onUse={(...split) => used.push(split)} />);
  fireEvent.change(screen.getByLabelText("Slots"), { target: { value: "4" } });
  fireEvent.click(screen.getByRole("button", { name: "Simulate" }));
  await screen.findByText("3 engines and 1 trainer rank");
  assert.deepEqual(sent.at(-1)?.body, { spec, devices: 4 });
  const text = screen.getByTestId("simulation").textContent ?? "";
  for (const part of ["the spec's split 700", "measured in 2 earlier runs", "max staleness of 2", "2 engines and 2 trainer ranks", "max staleness 0", "decode steps 20 % slower"]) assert.ok(text.includes(part), part);
  fireEvent.click(screen.getByRole("button", { name: "Use this split" }));
  assert.deepEqual(used, [[3, 1]]);
});

test("a refusal says what is missing, and an invalid spec is not simulated", async () => {
  answerRequests({ "POST /api/v1/runs/simulate": { status: 422, body: { title: "Invalid", status: 422, code: "unknown_gpu", detail: "name a GPU: A100, H100", errors: [] } } });
  const { rerender } = renderPage(<SimulationPanel spec={{}} canSimulate onUse={() => {}} />);
  fireEvent.click(screen.getByRole("button", { name: "Simulate" }));
  assert.match((await screen.findByRole("alert")).textContent ?? "", /name a GPU: A100, H100/);
  rerender(<></>);
  renderPage(<SimulationPanel spec={{}} canSimulate={false} onUse={() => {}} />);
  assert.equal(screen.getByRole("button", { name: "Simulate" }).hasAttribute("disabled"), true);
});
