import assert from "node:assert/strict";
import { test } from "vitest";

import type { Slot } from "../api/schema.d.ts";
import { deviceRows } from "./devices.ts";

const slot = (node: string, device: string, state: string, held = false) =>
  ({ device, model: device === "cuda" ? "H100" : "cpu", memory_bytes: 80, state, node: { id: node, name: node }, held_by: held ? {} : null }) as Slot;

test("slots are counted by device, over the nodes that have it", () => {
  const rows = deviceRows([slot("a", "cpu", "free"), slot("b", "cuda", "held", true), slot("b", "cuda", "unhealthy"), slot("c", "cuda", "free")]);
  assert.deepEqual(rows.map(({ device, nodes, slots, inUse, unhealthy }) => [device, nodes, slots, inUse, unhealthy]), [["cuda", 2, 3, 1, 1], ["cpu", 1, 1, 0, 0]]);
  assert.deepEqual(deviceRows([]), []);
});
