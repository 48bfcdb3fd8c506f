import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import { test } from "vitest";

import type { Slot } from "../api/schema.d.ts";
import { renderPage } from "../testing/render.tsx";
import { othersText, readingsText } from "./slot-readings.ts";
import { SlotTile } from "./slot-tile.tsx";

const SLOT: Slot = {
  id: "node_1:GPU-1", name: "GPU-1", node: { id: "node_1", name: "gpu-1" }, device: "cuda", model: "H100", memory_bytes: 80e9, state: "free", reason: "",
  utilization: null, memory_used_bytes: null, celsius: null, occupied_by: [], held_by: null,
};
const EVE = { pid: 7, user: "eve", command: "python3 train.py", memory_bytes: 1.1e9 };

test("readings say what was measured and nothing else", () => {
  assert.equal(readingsText({ ...SLOT, utilization: 0.62, memory_used_bytes: 40e9, celsius: 61 }), "62 %, 40.0 GB of 80.0 GB, 61 °C");
  assert.equal(readingsText({ ...SLOT, utilization: 0 }), "0 %");
  assert.equal(readingsText(SLOT), "");
});

test("a process of others is named, and its command where it is known", () => {
  assert.equal(othersText([EVE]), "eve (pid 7, 1.1 GB, python3 train.py)");
  assert.equal(othersText([{ ...EVE, command: "", memory_bytes: 0, user: "" }]), "a process (pid 7)");
});

test("a slot that others use says so in place of a holder", () => {
  renderPage(<SlotTile slot={{ ...SLOT, state: "occupied", occupied_by: [EVE] }} />);
  assert.ok(screen.getByText("Used by eve"));
  assert.equal(screen.queryByRole("link"), null);
});

test("a held slot leads to its run and says who else is there", () => {
  renderPage(<SlotTile slot={{ ...SLOT, state: "held", utilization: 0.5, occupied_by: [EVE], held_by: { run_id: "run_1", run_name: "letters", job: "trainer" } }} />);
  assert.equal(screen.getByRole("link").getAttribute("href"), "/runs/run_1");
  assert.ok(screen.getByText("also used by eve"));
  assert.ok(screen.getByText("50 %"));
});

test("a slot that another team holds is no link", () => {
  renderPage(<SlotTile slot={{ ...SLOT, state: "held", held_by: { run_id: "", run_name: "another team's run", job: "trainer" } }} />);
  assert.equal(screen.queryByRole("link"), null);
});
