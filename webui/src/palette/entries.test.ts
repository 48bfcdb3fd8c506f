import assert from "node:assert/strict";
import { test } from "vitest";

import type { Checkpoint, Dataset, Run, RunView, Template } from "../api/schema.d.ts";
import { checkpointEntries, datasetEntries, matches, MAX_PER_GROUP, nextEntry, pageEntries, runEntries, templateEntries, viewEntries } from "./entries.ts";

const PAGES = [{ to: "/", label: "Home", key: "h" }, { to: "/runs", label: "Runs", key: "r" }, { to: "/runs/new", label: "Start a run" }];

function checkpoint(id: string, changes: Partial<Checkpoint>): Checkpoint {
  return { id, run: { id: "run_1", name: "letters" }, step: 20, kind: "training", state: "STORED", aliases: [], ...changes } as Checkpoint;
}

test("every word of a query must match, in any order and case", () => {
  assert.equal(matches("step LETTERS", "letters, step 20"), true);
  assert.equal(matches("letters 30", "letters, step 20"), false);
  assert.equal(matches("", "anything"), true);
});

test("a page whose name begins with the query comes first", () => {
  assert.deepEqual(pageEntries(PAGES, "").map(({ to }) => to), ["/", "/runs", "/runs/new"]);
  assert.deepEqual(pageEntries(PAGES, "run").map(({ to }) => to), ["/runs", "/runs/new"]);
  assert.deepEqual(pageEntries(PAGES, "start").map(({ detail }) => detail), [""]);
  assert.equal(pageEntries(PAGES, "home")[0]!.detail, "g h");
});

test("a group has at most a handful of entries", () => {
  const runs = Array.from({ length: 9 }, (_, index) => ({ id: `run_${index}`, name: "one", status: "RUNNING", dataset: { ref: "letters@1" } }) as unknown as Run);
  assert.equal(runEntries(runs).length, MAX_PER_GROUP);
  assert.deepEqual(runEntries(runs)[0], { id: "run_0", label: "one", detail: "Running · letters@1", to: "/runs/run_0" });
});

test("a dataset is found by its name, also without a version", () => {
  const datasets = [{ id: "ds_1", name: "letters", latest: null }, { id: "ds_2", name: "math", latest: { ref: "math@2", rows: 1200 } }] as Dataset[];
  assert.deepEqual(datasetEntries(datasets, "let").map(({ detail }) => detail), ["no version"]);
  assert.deepEqual(datasetEntries(datasets, "ma"), [{ id: "ds_2", label: "math", detail: "math@2 · 1,200 rows", to: "/datasets/ds_2" }]);
});

test("a saved view is found by its name and opens the list with its filters", () => {
  const views = [{ id: "v1", name: "failed, by reward", query: { status: ["FAILED"], tag: ["a", "b"] }, columns: ["model"], owner: "ada" }, { id: "v2", name: "mine", query: {}, columns: null, owner: "bob" }] as unknown as RunView[];
  assert.deepEqual(viewEntries(views, "reward failed"), [{ id: "v1", label: "failed, by reward", detail: "view of ada", to: "/runs?status=FAILED&tag=a&tag=b&columns=model" }]);
});

test("a template is found by name and description and opens the start form with its values", () => {
  const templates = [{ id: "tpl_1", name: "nightly", ref: "nightly@2", description: "small model", of_team: true }, { id: "tpl_2", name: "weekly", ref: "weekly@1", description: "", of_team: false }] as Template[];
  assert.deepEqual(templateEntries(templates, "small"), [{ id: "tpl_1", label: "nightly@2", detail: "small model", to: "/runs/new?template=nightly" }]);
  assert.deepEqual(templateEntries(templates, "week").map(({ detail }) => detail), ["template"]);
});

test("a stored checkpoint is found by alias, run and step, and a deleted one is not", () => {
  const all = [checkpoint("ckpt_1", { aliases: ["best"] }), checkpoint("ckpt_2", { step: 40 }), checkpoint("ckpt_3", { state: "DELETED" })];
  assert.deepEqual(checkpointEntries(all, "letters").map(({ id }) => id), ["ckpt_1", "ckpt_2"]);
  assert.deepEqual(checkpointEntries(all, "best").map(({ label }) => label), ["best: letters, step 20"]);
  assert.deepEqual(checkpointEntries(all, "letters 40").map(({ to }) => to), ["/checkpoints/ckpt_2"]);
});

test("arrows go around both ends, and other keys do not move", () => {
  const entries = pageEntries(PAGES, "");
  assert.equal(nextEntry(entries, "page/", "ArrowDown"), "page/runs");
  assert.equal(nextEntry(entries, "page/", "ArrowUp"), "page/runs/new");
  assert.equal(nextEntry(entries, "page/runs/new", "ArrowDown"), "page/");
  assert.equal(nextEntry(entries, "page/", "a"), undefined);
  assert.equal(nextEntry([], undefined, "ArrowDown"), undefined);
});
