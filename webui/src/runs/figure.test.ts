import assert from "node:assert/strict";
import { test } from "node:test";

import { meanOfAll, newest } from "./figure.ts";

const line = (...y: number[]) => ({ points: { y } });

test("a figure of a run that goes on is the newest value, of an ended one the mean", () => {
  const generated = [line(10, 20, 0), line(6, 0)];
  assert.equal(newest(generated), 0);
  assert.equal(meanOfAll(generated), 13);
});

test("what was never measured is no figure, and no zero", () => {
  assert.equal(newest([]), null);
  assert.equal(meanOfAll([line()]), null);
});
