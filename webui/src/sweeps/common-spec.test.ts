import assert from "node:assert/strict";
import { test } from "vitest";

import { SPEC_FIELDS } from "../start/spec-schema.ts";
import { commonSpec } from "./common-spec.ts";

test("the spec of a run loses its defaults, its name and the id of its dataset", () => {
  const bound = SPEC_FIELDS.find(({ path }) => path.join("/") === "staleness/max")!.defaultValue;
  const spec = {
    kind: "rl", name: "one", notes: "why", seed: 7, model: { base_model: "tiny@1", checkpoint: null }, dataset: { version: "dsv_1", split: "train" },
    trainer: { learning_rate: 0.5 }, staleness: { max: bound },
  };
  const common = commonSpec({ spec: spec as never, dataset: { id: "dsv_1", ref: "sums@1" } });
  assert.deepEqual(common, { kind: "rl", model: { base_model: "tiny@1" }, dataset: { version: "sums@1" }, trainer: { learning_rate: 0.5 } });
});
