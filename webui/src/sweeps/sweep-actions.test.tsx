import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Sweep } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { SweepActions } from "./sweep-actions.tsx";

const SWEEP = { id: "swp_1", name: "rates", status: "RUNNING", counts: { running: 1, waiting: 2 } } as unknown as Sweep;

test("a cancel says what is lost, and Keep sweep has the focus", async () => {
  const sent = answerRequests({ "POST /api/v1/sweeps/swp_1/cancel": { status: 202, body: { ...SWEEP, status: "CANCELLED" } } });
  renderPage(<SweepActions sweep={SWEEP} readOnly={null} />);
  const user = userEvent.setup();
  await user.click(screen.getByRole("button", { name: "Cancel" }));
  screen.getByText(/1 active run ends without a last checkpoint.*2 waiting trials are skipped/);
  assert.equal(document.activeElement?.textContent, "Keep sweep");
  assert.equal(sent.length, 0);
  await user.click(screen.getByRole("button", { name: "Cancel sweep" }));
  assert.deepEqual(sent.map(({ method, url }) => `${method} ${url}`).at(-1), "POST /api/v1/sweeps/swp_1/cancel");
  assert.equal(screen.queryByRole("dialog"), null);
});

test("a viewer sees the actions disabled with the reason", () => {
  renderPage(<SweepActions sweep={SWEEP} readOnly="Your role is viewer." />);
  const pause = screen.getByRole<HTMLButtonElement>("button", { name: "Pause" });
  assert.ok(pause.disabled);
  assert.equal(pause.title, "Your role is viewer.");
});
