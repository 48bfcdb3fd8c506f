import assert from "node:assert/strict";
import { test } from "vitest";

import { forget, recall, receivedBytes, remember } from "./unfinished-upload.ts";

function memory(): Pick<Storage, "getItem" | "setItem" | "removeItem"> {
  const values = new Map<string, string>();
  return { getItem: (key) => values.get(key) ?? null, setItem: (key, value) => void values.set(key, value), removeItem: (key) => void values.delete(key) };
}

test("an unfinished upload is remembered per purpose until it is complete", () => {
  const storage = memory();
  const upload = { session: "ups_1", filename: "rows.jsonl", bytes: 25 };
  remember(storage, "dataset", upload);
  assert.deepEqual(recall(storage, "dataset"), upload);
  assert.equal(recall(storage, "model"), null);
  forget(storage, "dataset");
  assert.equal(recall(storage, "dataset"), null);
});

test("what is not an upload is not recalled", () => {
  const storage = memory();
  for (const text of ["{", "1", '{"session": 1}']) {
    storage.setItem("oolong:unfinished-upload:dataset", text);
    assert.equal(recall(storage, "dataset"), null);
  }
});

test("the last part counts with its own size", () => {
  assert.equal(receivedBytes({ bytes: 25, part_bytes: 10, part_count: 3, received_parts: [0, 2] }), 15);
});
