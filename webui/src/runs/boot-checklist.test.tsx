import assert from "node:assert/strict";
import { screen, within } from "@testing-library/react";
import { test } from "vitest";

import type { BootStage, RunDetail } from "../api/schema.d.ts";
import { renderPage } from "../testing/render.tsx";
import { BootChecklist } from "./boot-checklist.tsx";

const stage = (name: string, state: string, detail = "") =>
  ({ name, title: `Stage ${name}`, state, detail, started_at: "2026-01-01T00:00:00Z", ended_at: state === "done" ? "2026-01-01T00:01:05Z" : null }) as BootStage;
const run = (attempt: number, stages: BootStage[]) => ({ boot: { attempt_number: attempt, done: false, stages } }) as RunDetail;

test("each stage says its state in words and how long it took", () => {
  renderPage(<BootChecklist run={run(1, [stage("slots", "done"), stage("engine", "failed", "CUDA is not available")])} />);
  assert.ok(screen.getByText("Starting the run"));
  const [slots, engine] = screen.getAllByRole("listitem");
  assert.ok(within(slots!).getByLabelText("done") && within(slots!).getByText("1:05"));
  assert.ok(within(engine!).getByLabelText("failed") && within(engine!).getByText("CUDA is not available"));
});

test("a later attempt is named", () => {
  renderPage(<BootChecklist run={run(3, [stage("slots", "active")])} />);
  assert.ok(screen.getByText("Starting attempt 3"));
});

test("detail from a job is shown as text, never as markup", () => {
  renderPage(<BootChecklist run={run(1, [stage("engine", "active", "<img src=x onerror=alert(1)>")])} />);
  assert.ok(screen.getByText("<img src=x onerror=alert(1)>"));
  assert.equal(document.querySelector("img"), null);
});
