import assert from "node:assert/strict";
import { test } from "vitest";

import { copyText, python } from "./copy-text.ts";

const VALUES = { spec: { name: "sums", seed: 1 }, yaml: "name: sums\nseed: 1\n", origin: "https://oolong.example", team: "red", project: "maths" };

test("the command has the project's values and reads the spec from its input", () => {
  assert.equal(copyText("cli", VALUES), `export OOLONG_URL=https://oolong.example
export OOLONG_TOKEN=…   # of red / maths, from the page Tokens
oolong run create --file - <<'SPEC'
name: sums
seed: 1
SPEC
`);
});

test("curl sends the spec as JSON", () => {
  const text = copyText("curl", VALUES);
  assert.match(text, /curl --fail-with-body "\$OOLONG_URL\/api\/v1\/runs" \\\n {2}--header "Authorization: Bearer \$OOLONG_TOKEN"/);
  assert.deepEqual(JSON.parse(text.split("<<'SPEC'\n")[1]!.split("\nSPEC\n")[0]!), { spec: VALUES.spec });
});

test("a line of the spec cannot end the here-document, nor a name end its comment", () => {
  assert.match(copyText("cli", { ...VALUES, yaml: "notes: |-\n  x\nSPEC\nrm -rf\n", team: "a\nb" }), /# of a b \/ maths[\s\S]*<<'SPEC_'[\s\S]*\nSPEC\nrm -rf\nSPEC_\n$/);
  assert.match(copyText("cli", { ...VALUES, origin: "http://x;$(y)'" }), /OOLONG_URL='http:\/\/x;\$\(y\)'\\'''\n/);
});

test("the SDK gets Python's literals", () => {
  assert.match(copyText("sdk", VALUES), /spec = \{\n {4}"name": "sums",\n {4}"seed": 1,\n\}\n\nwith Client\(\) as client:/);
  assert.equal(python({ a: [true, null], b: {}, c: "\"\n" }, ""), "{\n    \"a\": [\n        True,\n        None,\n    ],\n    \"b\": {},\n    \"c\": \"\\\"\\n\",\n}");
});
