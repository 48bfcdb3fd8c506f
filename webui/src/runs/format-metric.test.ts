import assert from "node:assert/strict";
import { test } from "vitest";

import { mean, newest } from "./format-metric.ts";

const line = (...y: number[]) => ({ points: { y } });

test("an active run shows the newest value and an ended run the mean", () => {
  const generated = [line(10, 20, 0), line(6, 0)];
  assert.equal(newest(generated), 0);
  assert.equal(mean(generated), 13);
});

test("a metric without points is null, not 0", () => {
  assert.equal(newest([]), null);
  assert.equal(mean([line()]), null);
});
