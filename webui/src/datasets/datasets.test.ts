import assert from "node:assert/strict";
import { test } from "vitest";

import type { DatasetValidation } from "../api/schema.d.ts";
import { validationProgress } from "./validation-progress.ts";
import { guessMapping, isComplete } from "./guess-mapping.ts";
import { columnOf } from "./row-pointer.ts";

test("common column names are recognized in any case", () => {
  const mapping = guessMapping(["ID", "Question", "Solution", "split"]);
  assert.deepEqual([mapping.prompt_column, mapping.answer_column, mapping.split_column, mapping.completion_column], ["Question", "Solution", "split", null]);
});

test("chosen and rejected columns are a pair, which needs no answer", () => {
  const mapping = guessMapping(["prompt", "chosen", "rejected"]);
  assert.deepEqual([mapping.answer_column, mapping.chosen_column, mapping.rejected_column], [null, "chosen", "rejected"]);
  assert.equal(isComplete(mapping), true);
  assert.equal(isComplete({ ...mapping, rejected_column: null }), false);
  assert.equal(isComplete(guessMapping(["prompt", "chosen"])), false);
});

test("a solution column next to an answer column is the completion", () => {
  const mapping = guessMapping(["question", "answer", "solution"]);
  assert.deepEqual([mapping.answer_column, mapping.completion_column], ["answer", "solution"]);
});

test("a data_source column names the source", () => {
  assert.equal(guessMapping(["prompt", "answer", "data_source"]).source_column, "data_source");
  assert.equal(guessMapping(["prompt", "answer", "source"]).source_column, null);
});

test("unknown column names are not mapped", () => {
  assert.equal(guessMapping(["a", "b"]).prompt_column, "");
});

test("a pointer to a row names its column, and a pointer to the file has none", () => {
  assert.equal(columnOf("/rows/17/answer"), "answer");
  assert.equal(columnOf("/rows/17/a~1b"), "a/b");
  assert.equal(columnOf("/rows/3"), "");
  assert.equal(columnOf("/upload_id"), "");
  assert.equal(columnOf("/mapping/template"), "/mapping/template");
});

test("a running validation reports its progress", () => {
  const running = { state: "RUNNING", bytes: 1000, bytes_seen: 250, rows_seen: 0 } as DatasetValidation;
  assert.equal(validationProgress(null), "Validating rows");
  assert.equal(validationProgress({ ...running, state: "QUEUED" }), "Waiting in the validation queue");
  assert.equal(validationProgress(running), "Reading file: 25 %");
  assert.equal(validationProgress({ ...running, bytes_seen: 1000, rows_seen: 12000 }), "12,000 rows validated");
});
