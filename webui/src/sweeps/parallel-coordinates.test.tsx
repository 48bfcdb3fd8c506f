import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { test } from "vitest";

import type { Sweep, Trial } from "../api/schema.d.ts";
import { renderPage } from "../testing/render.tsx";
import { ParallelCoordinates } from "./parallel-coordinates.tsx";

const SWEEP = { plan: { parameters: [{ pointer: "/trainer/learning_rate", scale: "log" }], objective: { metric: "reward/mean", goal: "max" } } } as Sweep;
const TRIALS = [0.2, 0.9, null].map((objective, index) => ({ number: index + 1, objective, values: { "/trainer/learning_rate": 10 ** -index }, run: null, state: "running", skipped: "", train_step: 1 })) as Trial[];

function Chart({ opened }: { opened: number[] }) {
  const [active, setActive] = useState<number | null>(null);
  return <ParallelCoordinates sweep={SWEEP} trials={TRIALS} active={active} onActive={setActive} onOpen={(trial) => opened.push(trial.number)} />;
}

test("the keyboard begins at the best trial, goes to worse ones, and opens the run", async () => {
  const opened: number[] = [];
  renderPage(<Chart opened={opened} />);
  const user = userEvent.setup();
  const readout = screen.getByTestId("readout");
  await user.tab();
  assert.equal(readout.textContent, "Trial 2: learning_rate 0.100; reward/mean 0.900");
  await user.keyboard("{ArrowDown}");
  assert.match(readout.textContent ?? "", /^Trial 1: .* 0\.200$/);
  await user.keyboard("{ArrowDown}");
  assert.match(readout.textContent ?? "", /^Trial 3: .* no reward\/mean yet$/);
  await user.keyboard("{ArrowDown}{Enter}"); // around to the best
  assert.deepEqual(opened, [2]);
});

test("each trial is an option with its values as its name", () => {
  renderPage(<Chart opened={[]} />);
  assert.equal(screen.getAllByRole("option").length, 3);
  screen.getByRole("option", { name: "Trial 1: learning_rate 1; reward/mean 0.200" });
});
