import assert from "node:assert/strict";
import { test } from "vitest";

import { append, levelOf, linesOf, nextError, prepend } from "./log-window.ts";

test("parts join in both directions, and the window knows its bytes", () => {
  const window = append({ start: 10, next: 10, text: "" }, { text: "é\nb\n", next_offset: 15 });
  assert.deepEqual(prepend(window, { offset: 4, text: "a\n" }), { start: 4, next: 15, text: "a\né\nb\n" });
});

test("a window that grows too large loses whole lines from its front, counted in bytes", () => {
  const window = append({ start: 0, next: 0, text: "" }, { text: "éé\néé\néé\néé\n", next_offset: 20 }, 8);
  assert.deepEqual(window, { start: 15, next: 20, text: "éé\n" });
});

test("the last line break begins no line", () => {
  assert.deepEqual(linesOf("a\nb\n"), ["a", "b"]);
  assert.deepEqual(linesOf("a\nb"), ["a", "b"]);
});

test("levels are read as the server reads them", () => {
  assert.deepEqual(["12:00 INFO up", "WARN slow", "[x] CRITICAL", "ValueError: no", "Traceback (most recent call last):", "errors: 0"].map(levelOf), ["info", "warning", "error", "error", "error", ""]);
});

test("the next error is found around the end", () => {
  const lines = ["ERROR a", "b", "ERROR c"];
  assert.equal(nextError(lines, 2, 1), 0);
  assert.equal(nextError(lines, 0, -1), 2);
  assert.equal(nextError(["b"], 0, 1), null);
});
