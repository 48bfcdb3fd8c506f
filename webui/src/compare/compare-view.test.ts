import assert from "node:assert/strict";
import { test } from "vitest";

import { changeCompareView, comparePath, readCompareView, runIds, runStyle, withoutRun, withRun } from "./compare-view.ts";

const read = (text: string) => readCompareView(new URLSearchParams(text));
const change = (text: string, wanted: Parameters<typeof changeCompareView>[1]) => Object.fromEntries(changeCompareView(new URLSearchParams(text), wanted));

test("the first run is the baseline until another is pinned", () => {
  assert.equal(read("runs=run_a,run_b").baseline, "run_a");
  assert.equal(read("runs=run_a,run_b&baseline=run_b").baseline, "run_b");
  assert.equal(read("runs=run_a,run_b&baseline=run_c").baseline, "run_a");
  assert.deepEqual(read(""), { slots: [null], baseline: null, metrics: [] });
});

test("runs keep their colors when another leaves, and a new one takes the free color", () => {
  const { slots } = read("runs=run_a,run_b,run_c");
  const two = withoutRun(slots, "run_a");
  assert.equal(two.indexOf("run_c"), 2);
  assert.deepEqual(change("runs=run_a,run_b,run_c&baseline=run_a", { slots: two }), { runs: ",run_b,run_c" });
  assert.deepEqual(withRun(two, "run_d"), ["run_d", "run_b", "run_c"]);
  assert.equal(read("runs=,run_b,run_c").slots.indexOf("run_c"), 2);
});

test("removing the last run leaves nothing of it in the URL", () => {
  assert.deepEqual(change("runs=run_a&baseline=run_a&axis=time", { slots: [null] }), { axis: "time" });
});

test("a run is there once, and at most ten are", () => {
  const many = Array.from({ length: 12 }, (_, number) => `run_${number}`);
  const { slots } = read(`runs=run_0,${many.join()}`);
  assert.equal(runIds(slots).filter((id) => id === "run_0").length, 1);
  assert.ok(slots.length <= 10);
  const full = read(`runs=${many.slice(0, 10).join()}`).slots;
  assert.equal(withRun(full, "run_11"), full);
  assert.equal(withRun(full, "run_3"), full);
});

test("ten runs look different: six colors, then dashed", () => {
  const styles = Array.from({ length: 10 }, (_, slot) => runStyle(slot));
  assert.equal(new Set(styles.map(({ color, dashed }) => `${color}${dashed}`)).size, 10);
  assert.deepEqual([styles[5], styles[6]], [{ color: 6, dashed: false }, { color: 1, dashed: true }]);
});

test("a link to a comparison is readable", () => {
  assert.equal(comparePath(["run_a", "run_b"]), "/runs/compare?runs=run_a,run_b");
  assert.equal(comparePath([]), "/runs/compare");
});
