import assert from "node:assert/strict";
import { test } from "vitest";

import { ENVIRONMENT, spansOf, versionsOf } from "./version-spans.ts";

test("texts from the writer are used unchanged", () => {
  const { spans, isExact } = spansOf({ completion: "abcdef", policy_versions: [3, 2, 4, 1], version_texts: ["abcd", "ef"] });
  assert.deepEqual(spans, [{ version: 3, tokens: 2, text: "abcd" }, { version: 4, tokens: 1, text: "ef" }]);
  assert.equal(isExact, true);
});

test("without texts the completion is split in proportion to the tokens without loss", () => {
  const { spans, isExact } = spansOf({ completion: "abcdefghi", policy_versions: [0, 1, 1, 1, 2, 1] });
  assert.equal(spans.map((span) => span.text).join(""), "abcdefghi");
  assert.deepEqual(spans.map((span) => span.text), ["abc", "def", "ghi"]);
  assert.equal(isExact, false);
});

test("environment output is a separate span without a policy version", () => {
  const sample = { completion: "abxxcd", policy_versions: [3, 2, ENVIRONMENT, 1, 3, 1, 4, 1], version_texts: ["ab", "xx", "c", "d"] };
  assert.deepEqual(spansOf(sample).spans.map((span) => [span.version, span.text]), [[3, "ab"], [-1, "xx"], [3, "c"], [4, "d"]]);
  assert.equal(versionsOf(sample), 2);
});
