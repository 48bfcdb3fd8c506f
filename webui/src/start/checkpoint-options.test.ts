import assert from "node:assert/strict";
import { test } from "vitest";

import { checkpointOptions } from "./checkpoint-options.ts";

const entry = (id: string, changes: object) => ({
  id, run: { id: "run_1", name: "sums" }, step: 20, kind: "training" as const, state: "STORED" as const, metrics: {}, aliases: [], ...changes,
});

test("stored weights come before training checkpoints and say what they are", () => {
  const options = checkpointOptions([
    entry("ckpt_1", { step: 0 }),
    entry("ckpt_2", { state: "LOCAL" }),
    entry("ckpt_3", { kind: "weights", step: 30, metrics: { reward_mean: 0.8125, staleness_mean: null }, aliases: ["best"] }),
  ]);
  assert.deepEqual(options, [
    { value: "ckpt_3", label: "best · sums, step 30 · weights · mean reward 0.813 · ckpt_3" },
    { value: "ckpt_1", label: "sums, step 0 · training · ckpt_1" },
  ]);
});
