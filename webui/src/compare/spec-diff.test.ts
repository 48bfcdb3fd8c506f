import assert from "node:assert/strict";
import { test } from "vitest";

import { diffSentence, modeOf, specDiff, type ComparedSpec } from "./spec-diff.ts";

const NOTHING_CHANGED = { max_staleness: null, max_concurrent_groups: null, learning_rate: null, engines: null };

const run = (name: string, spec: object, live: object = {}) =>
  ({ name, kind: "rl", spec: { name, ...spec }, dataset: { ref: "letters@1" }, model: { name: "tiny" }, live: { ...NOTHING_CHANGED, ...live } }) as unknown as ComparedSpec & { name: string };

const rows = (...runs: ComparedSpec[]) => specDiff(runs).map(({ path, cells }) => [path, ...cells]);

test("only fields that differ are rows, without the name", () => {
  const one = run("one", { seed: 1, trainer: { learning_rate: 1e-6, groups_per_step: 8 } });
  const two = run("two", { seed: 1, trainer: { learning_rate: 2e-6, groups_per_step: 8 } });
  assert.deepEqual(rows(one, two), [["trainer.learning_rate", "1e-6", "2e-6"]]);
  assert.deepEqual(rows(one, one), []);
});

test("values are readable: names in the place of ids, and a field that a spec lacks", () => {
  const one = { ...run("one", { dataset: { version: "dsv_1" }, rollout: { interruptible: true, stop: ["a", "b"] }, secrets: [] }) };
  const two = { ...run("two", { dataset: { version: "dsv_2" }, rollout: { interruptible: false, stop: [], max_new_tokens: 32768 }, secrets: [] }), dataset: { ...one.dataset, ref: "letters@2" } };
  assert.deepEqual(rows(one, two), [
    ["dataset.version", "letters@1", "letters@2"],
    ["rollout.interruptible", "yes", "no"],
    ["rollout.stop", "a, b", "none"],
    ["rollout.max_new_tokens", "–", "32,768"],
  ]);
});

test("fields at the top of the spec come first, and runtime overrides are a section of their own", () => {
  const found = specDiff([run("one", { trainer: { minibatches: 1 }, seed: 1 }), run("two", { trainer: { minibatches: 2 }, seed: 2 }, { max_staleness: 8 })]);
  assert.deepEqual(found.map(({ section, field }) => [section, field]), [["Run", "seed"], ["Trainer", "minibatches"], ["Runtime overrides", "max_staleness"]]);
});

test("two runs whose η alone differs are named as synchronous and asynchronous", () => {
  const sync = run("wait", { staleness: { max: 0 } });
  const async = run("free", { staleness: { max: 4 } });
  assert.deepEqual(modeOf(sync), { label: "Synchronous, η = 0", isSync: true });
  assert.equal(modeOf(async)?.label, "Asynchronous, η = 4");
  assert.equal(diffSentence([sync, async], specDiff([sync, async])), "The same spec, synchronous in “wait” and asynchronous in “free”: only max staleness η differs.");
  assert.equal(diffSentence([async, run("more", { staleness: { max: 8 } })], specDiff([async, run("more", { staleness: { max: 8 } })])), "The same spec with another max staleness η.");
});

test("a runtime override of η decides whether a run is synchronous, and a warm start is neither", () => {
  assert.equal(modeOf(run("one", { staleness: { max: 4 } }, { max_staleness: 0 }))?.isSync, true);
  assert.equal(modeOf({ ...run("two", {}), kind: "sft" }), null);
});

test("the sentence counts the fields and names the first", () => {
  const other = run("two", { a: { b: 2, c: 2, d: 2, e: 2, f: 2 } });
  const base = run("one", { a: { b: 1, c: 1, d: 1, e: 1, f: 1 } });
  assert.equal(diffSentence([base, other], specDiff([base, other])), "The resolved specs differ in 5 fields: a.b, a.c, a.d, a.e and others.");
  assert.equal(diffSentence([base, base], []), "The resolved specs are the same.");
  assert.equal(diffSentence([base], []), "");
});
