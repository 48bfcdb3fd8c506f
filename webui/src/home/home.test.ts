import assert from "node:assert/strict";
import { test } from "vitest";

import type { Alert, Run } from "../api/schema.d.ts";
import { attentionItems, type Sources } from "./attention.ts";
import { cliSnippet } from "./cli-snippet.ts";
import { DEMO_PRESET, demoRun } from "./demo-run.ts";
import { poolSummary, quotaLines } from "./pool-summary.ts";
import { asJsonLines, sampleRows, splitOf } from "./sample-dataset.ts";

const NOW = Date.parse("2026-01-10T12:00:00Z");

function run(id: string, changes: Partial<Run> = {}): Run {
  const blank = { name: id, status: "RUNNING", conditions: [], reason: "", reason_message: "", advice: "", pending_reason: "", queue_position: null, progress: null, ended_at: null, status_at: "2026-01-10T11:00:00Z" };
  return { id, ...blank, ...changes } as unknown as Run;
}

function alert(id: string, severity: Alert["severity"]): Alert {
  return { id, rule: "stall", severity, title: `title ${id}`, message: `message ${id}`, advice: `advice ${id}`, train_step: 3, opened_at: "2026-01-10T11:30:00Z", closed_at: null };
}

function badges(sources: Partial<Sources>): string[] {
  return attentionItems({ flagged: [], failed: [], running: [], waiting: [], alerts: new Map(), ...sources }, NOW).map(({ run: { id }, badge }) => `${id} ${badge}`);
}

test("the most urgent comes first: errors, failures, warnings, then what waits", () => {
  const paused = run("paused", { status: "PAUSED", conditions: ["NEEDS_ATTENTION"], reason_message: "the reward failed" });
  const degraded = run("degraded", { conditions: ["DEGRADED"] });
  const healthy = run("healthy");
  const failed = run("failed", { status: "FAILED", ended_at: "2026-01-10T10:00:00Z" });
  const waiting = run("waiting", { status: "QUEUED", pending_reason: "no free slot", queue_position: 2 });
  const alerts = new Map([["degraded", [alert("a", "critical")]], ["healthy", [alert("b", "warning")]]]);
  assert.deepEqual(
    badges({ flagged: [degraded, paused], running: [healthy, degraded], failed: [failed], waiting: [waiting], alerts }),
    ["paused PAUSED_BY_ERROR", "degraded critical", "failed FAILED", "healthy warning", "waiting QUEUED"],
  );
});

test("a flagged run without its alerts is still listed, and a healthy one is not", () => {
  assert.deepEqual(badges({ flagged: [run("one", { conditions: ["UNRESPONSIVE"] })], running: [run("two")] }), ["one UNRESPONSIVE"]);
});

test("a failure is listed for seven days", () => {
  const failed = [run("new", { status: "FAILED", ended_at: "2026-01-03T12:00:01Z" }), run("old", { status: "FAILED", ended_at: "2026-01-03T12:00:00Z" })];
  assert.deepEqual(badges({ failed }), ["new FAILED"]);
});

test("a run that waits says where it is in the queue and why", () => {
  const [item] = attentionItems({ flagged: [], failed: [], running: [], alerts: new Map(), waiting: [run("w", { status: "QUEUED", pending_reason: "no free slot", queue_position: 2 })] }, NOW);
  assert.equal(item!.text, "#2 in the queue: no free slot");
});

test("slots are counted by state, and nodes that are not ready are left out", () => {
  const slots = ["held", "held", "free", "unhealthy"].map((state) => ({ state }));
  const nodes = ["READY", "LOST"].map((status) => ({ status }));
  assert.deepEqual(poolSummary({ slots, nodes }), { total: 4, busy: 2, free: 1, unhealthy: 1, readyNodes: 1 });
});

test("quotas are said for the team, and for the project if it has one", () => {
  const quota = { team: { id: "t", name: "blue" }, nominal_slots: 4, limit_slots: 8, lending_limit: null, used_slots: 1 };
  const without = { project: { id: "p", name: "math" }, nominal_slots: 0, limit_slots: null, used_slots: 1 };
  assert.deepEqual(quotaLines({ quota, project_quota: without }), ["blue holds 1 slot (4 nominal, at most 8)."]);
  assert.deepEqual(quotaLines({ quota: { ...quota, nominal_slots: 0, limit_slots: null }, project_quota: { ...without, limit_slots: 2 } }), ["blue holds 1 slot (no limit).", "math holds 1 slot (at most 2)."]);
});

test("the sample dataset is right, split by question and the same each time", () => {
  const wanted = { sft: 300, validation: 40, train: 100, eval: 40 };
  const rows = sampleRows(1, wanted);
  assert.deepEqual(rows, sampleRows(1, wanted));
  assert.notDeepEqual(rows, sampleRows(2, wanted));
  for (const { question, answer, solution, split } of rows) {
    const digits = question.split(" ").map((word) => Number(word.slice(1)));
    assert.equal(Number(answer), digits.reduce((sum, digit) => sum + digit, 0));
    assert.equal(splitOf(question), split);
    if (split !== "sft") assert.ok(solution.endsWith(`\\boxed{${answer}}`), solution);
  }
  const wrong = rows.filter(({ split, solution, answer }) => split === "sft" && !solution.endsWith(`{${answer}}`)).length;
  assert.ok(wrong > 30 && wrong < 270, `${wrong} of 300 demonstrations end in a wrong sum`);
  assert.equal(asJsonLines(rows).trimEnd().split("\n").length, 480);
  assert.deepEqual(Object.keys(JSON.parse(asJsonLines(rows).split("\n")[0]!) as object), ["question", "answer", "solution", "split"]);
});

test("the demo run names what it needs, then the sample dataset and the newest model", () => {
  const presets = [{ name: DEMO_PRESET, spec: { kind: "sft", model: { base_model: "letter-sum-tiny" }, dataset: { version: "x@latest", split: "sft" } } }] as unknown as Parameters<typeof demoRun>[0];
  assert.deepEqual(demoRun([], { datasets: [], models: [] }), { missing: "the preset letter-sum-sft, which this server does not have" });
  assert.deepEqual(demoRun(presets, { datasets: ["mine"], models: ["one"] }), { missing: "the sample dataset" });
  assert.deepEqual(demoRun(presets, { datasets: ["letter-sum"], models: [] }), { missing: "a base model" });
  assert.deepEqual(demoRun(presets, { datasets: ["letter-sum"], models: ["newest", "older"] }), {
    spec: { kind: "sft", name: "demo", model: { base_model: "newest" }, dataset: { version: "letter-sum@latest", split: "sft" } },
  });
});

test("the commands have the address and the names of the project", () => {
  const values = { origin: "https://gpu.example", team: "blue", project: "math" };
  assert.match(cliSnippet(values), /export OOLONG_URL=https:\/\/gpu\.example\n.*of blue \/ math/);
  assert.match(cliSnippet(values), /oolong quickstart/);
  const later = cliSnippet({ ...values, newestRun: { id: "run_1", name: "first" } });
  assert.match(later, /oolong run watch run_1/);
  assert.doesNotMatch(later, /quickstart/);
});
