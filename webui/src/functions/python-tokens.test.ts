import assert from "node:assert/strict";
import { test } from "vitest";

import { tokens } from "./python-tokens.ts";

const SOURCE = 'def score(a):  # "why"\n    """Two\n    lines."""\n    return f"{a}\\"" + r\'#\' * 1.5\n';

test("no character of the source is lost", () => {
  for (const source of [SOURCE, "", 'x = "open', "'''never closed\n", "é = 1\r\n"]) assert.equal(tokens(source).map(({ text }) => text).join(""), source);
});

test("keywords, strings, comments and numbers have a kind of their own", () => {
  const of = (kind: string) => tokens(SOURCE).filter((token) => token.kind === kind).map(({ text }) => text);
  assert.deepEqual(of("keyword"), ["def", "return"]);
  assert.deepEqual(of("comment"), ['# "why"']);
  assert.deepEqual(of("string"), ['"""Two\n    lines."""', 'f"{a}\\""', "r'#'"]);
  assert.deepEqual(of("number"), ["1.5"]);
});
