import assert from "node:assert/strict";
import { test } from "node:test";

import { spansOf } from "./version-spans.ts";

test("the writer's texts are shown as they are", () => {
  const { spans, isExact } = spansOf({ completion: "abcdef", policy_versions: [3, 2, 4, 1], version_texts: ["abcd", "ef"] });
  assert.deepEqual(spans, [{ version: 3, tokens: 2, text: "abcd" }, { version: 4, tokens: 1, text: "ef" }]);
  assert.equal(isExact, true);
});

test("without them the text is cut by the share of tokens and nothing is lost", () => {
  const { spans, isExact } = spansOf({ completion: "abcdefghi", policy_versions: [0, 1, 1, 1, 2, 1] });
  assert.equal(spans.map((span) => span.text).join(""), "abcdefghi");
  assert.deepEqual(spans.map((span) => span.text), ["abc", "def", "ghi"]);
  assert.equal(isExact, false);
});
