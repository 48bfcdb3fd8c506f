import assert from "node:assert/strict";
import { test } from "vitest";

import type { Alias, Gate, Retention, RetentionPlan } from "../api/schema.d.ts";
import { evidenceText, mayMove, mayRemove, namedAliases, refusalText } from "./alias-state.ts";
import { isFiltered, listQuery, withCursor, withFilter } from "./checkpoint-list-view.ts";
import { orderedMetrics } from "./checkpoint-metrics.ts";
import { exportCommands, exportFolder, linkCommand, quoted } from "./export-command.ts";
import { formOf, keptByReason, largest, policyOf, rulesInWords } from "./retention.ts";

const url = (text: string) => new URLSearchParams(text);

test("the URL is the query of the registry, without values that no filter has", () => {
  assert.deepEqual(listQuery(url("run=letters&state=STORED&kind=odd&alias=prod&cursor=abc&x=1&final=")), { run: "letters", state: "STORED", alias: "prod", cursor: "abc" });
});

test("another filter begins at the first page, and a page keeps the filters", () => {
  const search = url("run=letters&cursor=abc");
  assert.equal(withFilter(search, "state", "STORED").toString(), "run=letters&state=STORED");
  assert.equal(withFilter(search, "run", "").toString(), "");
  assert.equal(withCursor(search, "def").toString(), "run=letters&cursor=def");
  assert.equal(withCursor(search, null).toString(), "run=letters");
});

test("a page of a list is no filter", () => {
  assert.equal(isFiltered(url("cursor=abc")), false);
  assert.equal(isFiltered(url("kind=odd")), false);
  assert.equal(isFiltered(url("kind=weights")), true);
});

test("evaluations and the reward come before the other metrics, and what was not measured is left out", () => {
  const metrics = { "loss": 0.1, "reward_mean": 0.5, "eval/pass_at_4": 0.9, "eval/accuracy": 0.7, "eval/greedy": null };
  assert.deepEqual(orderedMetrics(metrics).map(([name]) => name), ["eval/accuracy", "reward_mean", "eval/pass_at_4", "loss"]);
});

const alias = (name: string, given: Partial<Alias> = {}) => ({ name, protected: false, evidence: null, updated_by: "ann", ...given }) as Alias;
const gate = (name: string) => ({ alias: name, assertions: ["eval/accuracy >= 0.8"] }) as unknown as Gate;
const EDITOR = { scopes: ["checkpoints:read", "checkpoints:write"] };
const OPERATOR = { scopes: [...EDITOR.scopes, "checkpoints:admin"] };
const VIEWER = { scopes: ["checkpoints:read"] };

test("a gate without its alias is listed, because it is what the alias waits for", () => {
  const named = namedAliases([alias("best"), alias("prod")], [gate("prod"), gate("canary")]);
  assert.deepEqual(named.map(({ name, alias: one, gate: other }) => [name, one !== null, other !== null]), [["best", true, false], ["canary", false, true], ["prod", true, true]]);
});

test("a gate lets editors move a protected alias, and only an operator moves one without a gate", () => {
  const protectedAlias = alias("prod", { protected: true });
  assert.equal(mayMove({ alias: protectedAlias, gate: gate("prod") }, EDITOR), true);
  assert.equal(mayMove({ alias: protectedAlias, gate: null }, EDITOR), false);
  assert.equal(mayMove({ alias: protectedAlias, gate: null }, OPERATOR), true);
  assert.equal(mayMove({ alias: alias("best"), gate: null }, VIEWER), false);
});

test("only an operator removes an alias that is protected or has a gate", () => {
  assert.equal(mayRemove({ alias: alias("best"), gate: null }, EDITOR), true);
  assert.equal(mayRemove({ alias: alias("prod"), gate: gate("prod") }, EDITOR), false);
  assert.equal(mayRemove({ alias: alias("prod", { protected: true }), gate: null }, EDITOR), false);
  assert.equal(mayRemove({ alias: alias("prod"), gate: gate("prod") }, OPERATOR), true);
  assert.equal(mayRemove({ alias: null, gate: gate("prod") }, OPERATOR), false);
});

test("a refusal says what to do next, and who can override it", () => {
  assert.equal(refusalText("passed", EDITOR.scopes), null);
  assert.match(refusalText("missing", EDITOR.scopes)!, /Run the gate's evaluation.*checkpoints:admin/);
  assert.match(refusalText("failed", OPERATOR.scopes)!, /Your role may override.*audit log/);
});

test("an overridden gate stays visible with the reason that it gave", () => {
  assert.equal(evidenceText(alias("best")), null);
  assert.equal(evidenceText(alias("prod", { evidence: { passed: true } }))?.passed, true);
  assert.deepEqual(evidenceText(alias("prod", { evidence: { passed: false, refusal: "0.2 is too low" } })), { passed: false, text: "ann overrode its gate: 0.2 is too low" });
});

const policy: Retention = { keep_last: 3, best_metric: "reward_mean", best_mode: "max", best_count: 1, every_steps: 1000, kinds: [], ttl_days: 1, automatic: false };

test("each rule of a policy is one sentence, and a policy without rules has none", () => {
  assert.deepEqual(rulesInWords(policy), ["the newest 3 of each run", "the best of each run by reward_mean (highest)", "those of every 1,000 steps", "those younger than a day"]);
  assert.deepEqual(rulesInWords({ ...policy, keep_last: null, best_metric: "", every_steps: null, ttl_days: null }), []);
});

test("the form of a policy gives the same policy back, and an empty number turns its rule off", () => {
  assert.deepEqual(policyOf(formOf(policy)), policy);
  assert.equal(policyOf({ ...formOf(policy), keepLast: "" }).keep_last, null);
  assert.equal(policyOf({ ...formOf(policy), bestCount: "" }).best_count, 1);
});

test("a plan counts what it keeps by reason and lists the largest first", () => {
  const plan: RetentionPlan = {
    free: [{ id: "a", bytes: 1, keep_reasons: [] }, { id: "b", bytes: 9, keep_reasons: [] }],
    keep: [{ id: "c", bytes: 1, keep_reasons: ["pinned", "last 3 of its run"] }, { id: "d", bytes: 1, keep_reasons: ["last 3 of its run"] }],
    free_bytes: 10,
  };
  assert.deepEqual(keptByReason(plan), [["last 3 of its run", 2], ["pinned", 1]]);
  assert.deepEqual(largest(plan.free, 1).map(({ id }) => id), ["b"]);
});

const checkpoint = { id: "ckpt_1", run: { id: "run_1", name: "Letters: 'final' run" }, step: 40, content: "model" as const };
const commandsOf = (content: "model" | "adapter", name: string) => exportCommands({ ...checkpoint, content }, [{ name }]).map(({ command }) => command);

test("an export writes the model, or of an adapter the PEFT directory and the merged model", () => {
  assert.equal(exportFolder(checkpoint), "letters-final-run-step-40");
  assert.equal(exportFolder({ ...checkpoint, run: { id: "run_1", name: "試験" } }), "run_1-step-40");
  assert.deepEqual(commandsOf("model", "hf/config.json"), ["oolong checkpoint export ckpt_1 letters-final-run-step-40"]);
  assert.deepEqual(commandsOf("adapter", "adapter/adapter_model.safetensors"), [
    "oolong checkpoint export ckpt_1 letters-final-run-step-40-adapter",
    "oolong checkpoint export ckpt_1 letters-final-run-step-40 --merged",
  ]);
  assert.deepEqual(commandsOf("model", "trainer.json"), []);
  assert.deepEqual(commandsOf("adapter", "trainer.json"), []);
});

test("a shell reads the address of a link as one word", () => {
  assert.equal(quoted("https://a/b"), "https://a/b");
  assert.equal(quoted("a'b c"), String.raw`'a'\''b c'`);
  assert.match(linkCommand(checkpoint, "https://a/b?x=1&y=2", "0f"), /--continue-at - .*'https:\/\/a\/b\?x=1&y=2'\necho '0f {2}ckpt_1\.tar' \| sha256sum --check$/);
});
