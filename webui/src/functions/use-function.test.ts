import assert from "node:assert/strict";
import { test } from "vitest";

import { startWith, withFunctions } from "./use-function.ts";

const applied = (address: string, spec = {}) => withFunctions(spec, new URLSearchParams(address.split("?")[1]));

test("the start page puts a function into its section", () => {
  assert.deepEqual(applied(startWith({ kind: "reward", ref: "close@2" }), { reward: { name: "math", scale: 5 } }), { reward: { function: "close@2" } });
  assert.deepEqual(applied(startWith({ kind: "workflow", ref: "guess@1" }), { workflow: { max_turns: 2 } }), { workflow: { max_turns: 2, function: "guess@1" } });
  assert.deepEqual(applied(startWith({ kind: "loss", ref: "tapered@1" })), { algorithm: { loss_function: "tapered@1" } });
});

test("an address without a function, or with one that is no JSON, changes nothing", () => {
  for (const address of ["/runs/new?dataset=sums@1", "/runs/new?reward=oops"]) assert.deepEqual(applied(address, { reward: { name: "math" } }), { reward: { name: "math" } });
});

test("the address keeps the dataset and the weights of a test", () => {
  assert.equal(startWith({ kind: "loss", ref: "a@1" }, { dataset: "sums@1" }), "/runs/new?dataset=sums%401&loss=a%401");
});
