import assert from "node:assert/strict";
import { test } from "vitest";

import { Problem } from "../api/problem.ts";
import { fieldError, otherError } from "./field-error.ts";

const problem = (code: string, detail: string, pointers: string[]) =>
  new Problem({ status: 422, code, title: "Invalid", detail, errors: pointers.map((pointer) => ({ pointer, code: "invalid", message: `wrong at ${pointer}` })) });

test("an error stands at its field, also one of a part of it", () => {
  const error = problem("invalid", "two fields", ["/name", "/events/1"]);
  assert.equal(fieldError(error, "/name"), "Wrong at /name");
  assert.equal(fieldError(error, "/events"), "Wrong at /events/1");
  assert.equal(fieldError(error, "/url"), undefined);
  assert.equal(otherError(error, ["/name", "/events"]), null);
  assert.equal(otherError(error, ["/name"]), error);
});

test("a conflict without a pointer is of the field that the form names for its code", () => {
  const taken = problem("name_taken", "the project has 'ci' already", []);
  assert.equal(fieldError(taken, "/name", ["name_taken"]), "The project has 'ci' already");
  assert.equal(otherError(taken, ["/name"], ["name_taken"]), null);
  assert.equal(otherError(taken, ["/name"]), taken);
  assert.equal(fieldError(new Error("offline"), "/name"), undefined);
});
