import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Node, Slot } from "../api/schema.d.ts";
import { renderPage } from "../testing/render.tsx";
import { countsText, SlotGrid } from "./slot-grid.tsx";

const node = (number: number) => ({ id: `node_${number}`, name: `gpu-${number}`, status: "READY" }) as Node;
const slot = (number: number, index: number, changes: Partial<Slot> = {}): Slot => ({
  id: `node_${number}:GPU-${index}`, name: `GPU-${index}`, node: { id: `node_${number}`, name: `gpu-${number}` }, device: "cuda", model: "H100", memory_bytes: 80e9, state: "free",
  reason: "", utilization: null, memory_used_bytes: null, celsius: null, occupied_by: [], held_by: null, ...changes,
});
const pool = (nodes: number, changes: Partial<Slot> = {}) => ({
  nodes: Array.from({ length: nodes }, (_, number) => node(number)),
  slots: Array.from({ length: nodes }, (_, number) => [slot(number, 0, number === 3 ? changes : {}), slot(number, 1)]).flat(),
});
const show = (of: ReturnType<typeof pool>) => renderPage(<SlotGrid pool={of} reserved={new Map()} />);

test("a small pool shows the tiles of every node", () => {
  show(pool(4));
  assert.equal(screen.getAllByText("H100").length, 8);
  assert.equal(screen.queryByRole("searchbox"), null);
});

test("a node of a large pool is one line with counts, and opens to its tiles", async () => {
  show(pool(40, { state: "held", held_by: { run_id: "run_1", run_name: "letters", job: "trainer" } }));
  assert.equal(screen.queryByText("H100"), null);
  assert.ok(screen.getByText("1 held, 1 free"));
  const user = userEvent.setup();
  await user.click(screen.getByRole("button", { name: "Open the slots of gpu-3" }));
  assert.equal(screen.getByRole("link").getAttribute("href"), "/runs/run_1");
});

test("the search finds nodes by their name and by the run that holds a slot", async () => {
  show(pool(40, { state: "held", held_by: { run_id: "run_1", run_name: "letters", job: "trainer" } }));
  const user = userEvent.setup();
  const search = screen.getByRole("searchbox", { name: "Search nodes, models and runs" });
  await user.type(search, "Letters");
  assert.deepEqual(screen.getAllByRole("button").map((button) => button.getAttribute("aria-label")), ["Open the slots of gpu-3"]);
  await user.type(search, " of nobody");
  assert.ok(screen.getByText(/No node, model or run/));
});

test("a node without slots says so", () => {
  assert.equal(countsText([]), "no slots");
});
