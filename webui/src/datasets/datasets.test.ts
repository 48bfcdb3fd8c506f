import assert from "node:assert/strict";
import { test } from "node:test";

import { guessMapping } from "./guess-mapping.ts";
import { rowOf } from "./row-pointer.ts";

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

test("a pointer into the rows names row and column", () => {
  assert.deepEqual(rowOf("/rows/17/answer"), { row: 17, column: "answer" });
  assert.deepEqual(rowOf("/rows/3"), { row: 3, column: "" });
  assert.deepEqual(rowOf("/mapping/template"), { row: null, column: "" });
});
