import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "vitest";

import { fingerprintOf, missingParts } from "./parts.ts";
import { softwareSha256, sha256 } from "./sha256.ts";

test("only missing parts are sent, and the last part holds the remaining bytes", () => {
  const session = { bytes: 25, part_bytes: 10, part_count: 3, received_parts: [1] };
  assert.deepEqual(missingParts(session), [{ number: 0, begin: 0, end: 10 }, { number: 2, begin: 20, end: 25 }]);
  assert.deepEqual(missingParts({ ...session, received_parts: [0, 1, 2] }), []);
});

test("another file with the same name is a separate upload", () => {
  const file = { name: "rows.jsonl", size: 5, lastModified: 1 };
  assert.equal(fingerprintOf(file), fingerprintOf({ ...file }));
  assert.notEqual(fingerprintOf(file), fingerprintOf({ ...file, lastModified: 2 }));
});

test("the checksum is SHA-256 with and without the browser's implementation", async () => {
  for (const length of [0, 3, 55, 56, 63, 64, 65, 1000, 100_003]) {
    const data = Uint8Array.from({ length }, (_, n) => (n * 31) % 256);
    const expected = createHash("sha256").update(data).digest("hex");
    assert.equal(Buffer.from(softwareSha256(data)).toString("hex"), expected);
    assert.equal(await sha256(data.buffer), expected);
  }
});
