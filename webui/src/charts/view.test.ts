import assert from "node:assert/strict";
import { test } from "vitest";

import { changeChartView, readChartView } from "./view.ts";

const AXES = ["step", "time"] as const;
const read = (text: string) => readChartView(new URLSearchParams(text), AXES);
const change = (text: string, wanted: Parameters<typeof changeChartView>[1]) => changeChartView(new URLSearchParams(text), wanted, AXES).toString();

test("an empty URL is the default view", () => {
  assert.deepEqual(read(""), { axis: "step", smoothing: 0.5, zoom: null, switched: new Set() });
});

test("a view survives the way through the URL", () => {
  const url = changeChartView(changeChartView(new URLSearchParams("tab=live"), { axis: "time", smoothing: 0 }, AXES), { zoom: { min: 1 / 3, max: 1e6 }, toggleScale: "loss" }, AXES);
  assert.equal(url.get("tab"), "live");
  assert.deepEqual(readChartView(url, AXES), { axis: "time", smoothing: 0, zoom: { min: 0.3333333, max: 1e6 }, switched: new Set(["loss"]) });
});

test("defaults are left out of the URL, and a second change of a scale takes the first back", () => {
  assert.equal(change("axis=time&smooth=0.9&zoom=1..2&log=loss", { axis: "step", smoothing: 0.5, zoom: null, toggleScale: "loss" }), "");
});

test("another axis has no zoom", () => {
  assert.equal(change("zoom=1..2", { axis: "time" }), "axis=time");
  assert.equal(change("zoom=1..2", { axis: "step" }), "zoom=1..2");
});

test("values that are none count as left out", () => {
  assert.deepEqual(read("axis=flops&smooth=much&zoom=9..2&log="), read(""));
  assert.equal(read("smooth=3").smoothing, 0.5);
  for (const zoom of ["..", "1..", "1..2..3", "a..b", "1"]) assert.equal(read(`zoom=${zoom}`).zoom, null, zoom);
});
