import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "vitest";

import { RL_CHARTS, SFT_CHARTS } from "../runs/run-charts.ts";
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

test("the charts of a run lead to a page of their own, where there is one", () => {
  assert.equal(conceptOf("staleness/mean"), "concepts/staleness");
  assert.equal(conceptOf("time/step_seconds"), "reference/metrics");
  for (const plan of [...RL_CHARTS, ...SFT_CHARTS]) for (const { metric } of plan.lines) assert.ok(conceptOf(metric).includes("/"), metric);
});
