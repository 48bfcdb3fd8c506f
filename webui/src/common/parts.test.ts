import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

import { fingerprintOf, missingParts } from "./parts.ts";
import { computed, sha256 } from "./sha256.ts";

test("only what is not there is sent, and the last part is the rest", () => {
  const session = { bytes: 25, part_bytes: 10, part_count: 3, received_parts: [1] };
  assert.deepEqual(missingParts(session), [{ number: 0, begin: 0, end: 10 }, { number: 2, begin: 20, end: 25 }]);
  assert.deepEqual(missingParts({ ...session, received_parts: [0, 1, 2] }), []);
});

test("another file of the same name is another upload", () => {
  const file = { name: "rows.jsonl", size: 5, lastModified: 1 };
  assert.equal(fingerprintOf(file), fingerprintOf({ ...file }));
  assert.notEqual(fingerprintOf(file), fingerprintOf({ ...file, lastModified: 2 }));
});

test("the checksum is SHA-256 with and without the browser's own", async () => {
  for (const length of [0, 3, 55, 56, 63, 64, 65, 1000, 100_003]) {
    const data = Uint8Array.from({ length }, (_, n) => (n * 31) % 256);
    const wanted = createHash("sha256").update(data).digest("hex");
    assert.equal(Buffer.from(computed(data)).toString("hex"), wanted);
    assert.equal(await sha256(data.buffer), wanted);
  }
});
