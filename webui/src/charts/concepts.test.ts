import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "vitest";

import { DPO_CHARTS, RL_CHARTS, SFT_CHARTS } from "../runs/run-charts.ts";
import { CONCEPTS, conceptOf } from "./concepts.ts";

const DOCS = new URL("../../../docs/", import.meta.url);

function anchorsOf(page: string): string[] {
  const headings = readFileSync(new URL(`${page}.md`, DOCS), "utf8").match(/^#+ .*$/gm) ?? [];
  return headings.map((heading) => heading.replace(/^#+ /, "").toLowerCase().replace(/[^\w\- ]/g, "").replaceAll(" ", "-"));
}

test("each concept is a page, and a heading of it", () => {
  for (const target of [...Object.values(CONCEPTS), conceptOf("unknown/metric")]) {
    const [page, anchor] = target.split("#");
    assert.ok(existsSync(new URL(`${page}.md`, DOCS)), target);
    if (anchor !== undefined) assert.ok(anchorsOf(page!).includes(anchor), target);
  }
});

/** Metrics without a concept of their own: the list of all metrics explains them. */
const WITHOUT_CONCEPT = new Set(["perf", "sft", "time"]);

test("each chart of a run has a concept, or is known to have none", () => {
  assert.equal(conceptOf("staleness/mean"), "concepts/staleness");
  const areas = [...RL_CHARTS, ...SFT_CHARTS, ...DPO_CHARTS].flatMap(({ lines }) => lines.map(({ metric }) => metric.split("/")[0]!));
  assert.deepEqual(new Set(areas.filter((area) => CONCEPTS[area] === undefined)), WITHOUT_CONCEPT);
});
