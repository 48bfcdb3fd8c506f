import assert from "node:assert/strict";
import { test } from "node:test";

import type { DatasetValidation } from "../api/schema.d.ts";
import { checkState } from "./check-state.ts";
import { guessMapping } from "./guess-mapping.ts";
import { columnOf } from "./row-pointer.ts";

test("usual column names are recognised whatever their case", () => {
  const mapping = guessMapping(["ID", "Question", "Solution", "split"]);
  assert.deepEqual([mapping.prompt_column, mapping.answer_column, mapping.split_column, mapping.completion_column], ["Question", "Solution", "split", null]);
});

test("a solution beside an answer is the demonstration", () => {
  const mapping = guessMapping(["question", "answer", "solution"]);
  assert.deepEqual([mapping.answer_column, mapping.completion_column], ["answer", "solution"]);
});

test("unknown column names are left to the reader", () => {
  assert.equal(guessMapping(["a", "b"]).prompt_column, "");
});

test("a pointer into the rows names its column, and the file as a whole has none", () => {
  assert.equal(columnOf("/rows/17/answer"), "answer");
  assert.equal(columnOf("/rows/17/a~1b"), "a/b");
  assert.equal(columnOf("/rows/3"), "");
  assert.equal(columnOf("/upload_id"), "");
  assert.equal(columnOf("/mapping/template"), "/mapping/template");
});

test("a check that runs says how far it is", () => {
  const running = { state: "RUNNING", bytes: 1000, bytes_seen: 250, rows_seen: 0 } as DatasetValidation;
  assert.equal(checkState(null), "Checking the rows");
  assert.equal(checkState({ ...running, state: "QUEUED" }), "The check waits for its turn");
  assert.equal(checkState(running), "Reading the file: 25 %");
  assert.equal(checkState({ ...running, bytes_seen: 1000, rows_seen: 12000 }), "12,000 rows checked");
});
