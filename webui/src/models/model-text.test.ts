import assert from "node:assert/strict";
import { test } from "vitest";

import { importPercent, importText, isUnderWay, keepReason, shortSource, sourceText } from "./model-text.ts";

const of = (state: string, bytes_done = 0, bytes_total = 0, message = "") => ({ state, bytes_done, bytes_total, message }) as Parameters<typeof importText>[0];

test("an import says how far it is, and why it ended", () => {
  assert.equal(importText(of("QUEUED")), "Waits for a free node.");
  assert.equal(importText(of("RUNNING")), "The node lists the files.");
  assert.equal(importText(of("RUNNING", 5e8, 2e9)), "500 MB of 2.0 GB");
  assert.equal(importText(of("FAILED", 0, 0, "404 from the hub")), "404 from the hub");
  assert.deepEqual([importPercent(of("RUNNING", 1, 4)), importPercent(of("RUNNING")), importPercent(of("CHECKING")), importPercent(of("DONE"))], [25, null, 100, null]);
  assert.deepEqual(["QUEUED", "RUNNING", "CHECKING", "DONE", "FAILED", "CANCELLED"].map((state) => isUnderWay(of(state))), [true, true, true, false, false, false]);
});

test("the source of a model is its hub with the commit, its path or an upload", () => {
  assert.equal(sourceText({ source: "hub", origin: "hub.example/acme/tiny@abc", path: "" }), "hub.example/acme/tiny@abc");
  assert.equal(sourceText({ source: "path", origin: "", path: "/models/tiny" }), "/models/tiny");
  assert.equal(sourceText({ source: "upload", origin: "", path: "" }), "upload");
});

test("a table shows the first digits of a commit, and any other revision whole", () => {
  const from = (origin: string) => shortSource({ source: "hub", origin, path: "" });
  assert.equal(from(`hub.example/acme/tiny@${"c0ffee".repeat(6)}abcd`), "hub.example/acme/tiny@c0ffeec0ffee");
  assert.equal(from("hub.example/acme/tiny@main"), "hub.example/acme/tiny@main");
});

test("only a model that is ready stays", () => {
  assert.match(keepReason({ state: "READY" }) ?? "", /runs and checkpoints name it/);
  assert.equal(keepReason({ state: "INVALID" }), null);
});
