import assert from "node:assert/strict";
import { test } from "vitest";

import type { MaintenanceWindow, Reservation } from "../api/schema.d.ts";
import { barOf, entriesOf, periodBody, periodText, reservedSlots, whereText, whoseText } from "./calendar.ts";

const NOW = Date.parse("2026-11-20T10:00:00Z");
const COMMON = { pool: "lab", nodes: [], state: "upcoming" as const, reason: "", created_by: "alice", created_at: "2026-11-20T09:00:00Z" };

const RESERVATION: Reservation = {
  ...COMMON, id: "res_1", starts_at: "2026-11-20T14:00:00Z", ends_at: "2026-11-20T16:00:00Z", team: { id: "team_1", name: "blue" }, project: null,
  slots: 8, device: "", allocation: [{ node: { id: "node_1", name: "gpu-1" }, slots: ["GPU-0", "GPU-1"] }],
};
const WINDOW: MaintenanceWindow = {
  ...COMMON, id: "mnt_1", starts_at: "2026-11-20T12:00:00Z", ends_at: "2026-11-21T01:00:00Z", reason: "new fans", whole_pool: false,
  nodes: [{ id: "node_3", name: "gpu-3" }], drains_at: "2026-11-20T11:45:00Z",
};

test("the next one comes first, whatever it is", () => {
  assert.deepEqual(entriesOf([RESERVATION], [WINDOW]).map(({ of }) => of.id), ["mnt_1", "res_1"]);
});

test("an entry says for whom and which slots", () => {
  const entry = { kind: "reservation" as const, of: RESERVATION };
  assert.equal(whoseText(entry), "team blue");
  assert.equal(whoseText({ ...entry, of: { ...RESERVATION, project: { id: "prj_1", name: "demo" } } }), "project demo of team blue");
  assert.equal(whereText({ ...entry, of: { ...RESERVATION, slots: 2 } }, NOW), "2 slots on gpu-1");
  assert.equal(whereText(entry, NOW), "8 slots, 2 of them on gpu-1");
  assert.equal(whereText({ ...entry, of: { ...RESERVATION, allocation: [] } }, NOW), "8 slots: no node can hold them now");
  assert.equal(whereText({ ...entry, of: { ...RESERVATION, allocation: [], slots: 1, device: "cuda" } }, NOW - 48 * 3_600_000), "1 cuda slot, on nodes chosen 24 h before the start");
  assert.equal(whereText({ ...entry, of: { ...RESERVATION, nodes: [{ id: "node_1", name: "gpu-1" }] } }, NOW), "8 slots: all of gpu-1");
  assert.equal(whereText({ kind: "maintenance", of: WINDOW }, NOW), "gpu-3");
  assert.equal(whereText({ kind: "maintenance", of: { ...WINDOW, whole_pool: true } }, NOW), "every node");
});

test("a bar begins now at the earliest and ends with the axis", () => {
  const bar = barOf(RESERVATION, NOW);
  assert.deepEqual([bar?.left, bar?.width].map((part) => Math.round(48 * part!)), [4, 2]);
  assert.equal(barOf({ starts_at: "2026-11-20T08:00:00Z", ends_at: "2026-11-20T16:00:00Z" }, NOW)?.left, 0);
  assert.equal(barOf({ starts_at: "2026-11-23T08:00:00Z", ends_at: "2026-11-23T16:00:00Z" }, NOW), null);
  assert.equal(barOf({ starts_at: "2026-11-20T08:00:00Z", ends_at: "2026-11-20T10:00:00Z" }, NOW), null);
});

test("a period has dates where it is not today", () => {
  assert.equal(periodText(RESERVATION, NOW, "UTC"), "14:00 to 16:00");
  assert.equal(periodText(WINDOW, NOW, "UTC"), "12:00 to 21 Nov 01:00");
  assert.equal(periodText(RESERVATION, NOW - 86_400_000, "UTC"), "20 Nov 14:00 to 16:00");
});

test("an empty start is now", () => {
  assert.deepEqual(periodBody({ start: "", amount: 2, unit: "hours" }), { duration_seconds: 7200 });
  assert.equal(periodBody({ start: "2026-11-20T14:00", amount: 1, unit: "days" }).starts_at, new Date("2026-11-20T14:00").toISOString());
});

test("a slot shows its next reservation", () => {
  const later = { ...RESERVATION, id: "res_2", starts_at: "2026-11-20T18:00:00Z" };
  assert.equal(reservedSlots([later, RESERVATION]).get("node_1/GPU-0")?.id, "res_1");
  assert.equal(reservedSlots([RESERVATION]).has("node_1/GPU-2"), false);
});
