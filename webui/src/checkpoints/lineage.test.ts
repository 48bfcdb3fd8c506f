import assert from "node:assert/strict";
import { test } from "vitest";

import type { LineageEdge, LineageNode } from "../api/schema.d.ts";
import { edgeLabel, layOut, MAX_IN_COLUMN, nodePath } from "./lineage.ts";

const node = (id: string, kind = "checkpoint"): LineageNode => ({ id, kind, name: id });
const edge = (from: string, to: string, kind = "left"): LineageEdge => ({ from, to, kind });

const NODES = [node("model", "base_model"), node("data", "dataset_version"), node("first", "run"), node("a"), node("second", "run"), node("b"), node("reward", "function_version")];
const EDGES = [edge("model", "first", "starts_from"), edge("data", "first", "trained_on"), edge("first", "a"), edge("a", "second", "starts_from"), edge("data", "second", "trained_on"), edge("reward", "second", "reward"), edge("second", "b")];

const columnOf = (id: string, nodes = NODES, edges = EDGES) => {
  const { nodes: placed } = layOut(nodes, edges, "a");
  const columns = [...new Set(placed.map(({ x }) => x))].sort((one, other) => one - other);
  return columns.indexOf(placed.find((one) => one.id === id)!.x);
};

test("every input stands left of its result, and one without inputs right before its first use", () => {
  assert.deepEqual(["model", "data", "first", "a", "second", "b"].map((id) => columnOf(id)), [0, 0, 1, 2, 3, 4]);
  assert.equal(columnOf("reward"), 2);
});

test("no two nodes overlap, and the drawing holds all of them", () => {
  const placed = layOut(NODES, EDGES, "a");
  assert.equal(new Set(placed.nodes.map(({ x, y }) => `${x} ${y}`)).size, NODES.length);
  for (const { x, y } of placed.nodes) assert.ok(x >= 0 && y >= 0 && x < placed.width && y < placed.height);
  assert.equal(placed.edges.length, EDGES.length);
});

test("a column of many children shows some, counts the others and keeps the focus", () => {
  const children = Array.from({ length: 50 }, (_, index) => node(`child ${index}`));
  const placed = layOut([node("run", "run"), ...children], children.map(({ id }) => edge("run", id)), "child 49");
  assert.deepEqual(placed.hidden.map(({ count }) => count), [50 - MAX_IN_COLUMN]);
  assert.ok(placed.nodes.some(({ id }) => id === "child 49"));
  assert.equal(placed.edges.length, MAX_IN_COLUMN);
  assert.ok(placed.hidden[0]!.y < placed.height);
});

test("a run that resumed from its own checkpoint does not hang the drawing", () => {
  const placed = layOut([node("run", "run"), node("a"), node("b")], [edge("run", "a"), edge("run", "b"), edge("a", "run", "resumed"), edge("a", "b", "resumed")], "b");
  assert.equal(placed.nodes.length, 3);
});

test("a graph with a long chain of runs is laid out in time", () => {
  const chain = Array.from({ length: 200 }, (_, index) => node(`n${index}`));
  const edges = chain.slice(1).flatMap((_, index) => [edge(`n${index}`, `n${index + 1}`), ...(index > 0 ? [edge(`n${index - 1}`, `n${index + 1}`)] : [])]);
  const began = performance.now();
  assert.equal(layOut(chain, edges, "n0").nodes.length, 200);
  assert.ok(performance.now() - began < 1_000);
});

test("an edge to a node that is not shown is left out", () => {
  assert.equal(layOut([node("a")], [edge("gone", "a")], "a").edges.length, 0);
  assert.deepEqual(layOut([], [], "a"), { nodes: [], edges: [], hidden: [], width: 0, height: 0 });
});

test("a node opens its page, and an edge says what it means", () => {
  assert.equal(nodePath(node("ckpt_1")), "/checkpoints/ckpt_1");
  assert.equal(nodePath(node("dsv_1", "dataset_version")), "/datasets?version=dsv_1");
  assert.equal(nodePath(node("fnv_1", "function_version")), null);
  assert.equal(edgeLabel("starts_from"), "starts from it");
  assert.equal(edgeLabel("reward"), "is its reward");
});
