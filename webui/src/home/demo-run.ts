import type { Preset } from "../api/schema.d.ts";
import { object, type Json } from "../common/json.ts";
import { SAMPLE_NAME } from "./sample-dataset.ts";

export const DEMO_PRESET = "letter-sum-sft";

type Available = { datasets: string[]; models: string[] };
type Named = Pick<Preset, "name" | "spec">;

/** The spec of the demo run, or what it still needs. It teaches the newest base model the task of the sample dataset. */
export function demoRun(presets: Named[], { datasets, models }: Available): { spec: Json } | { missing: string } {
  const preset = presets.find(({ name }) => name === DEMO_PRESET);
  if (preset === undefined) return { missing: `the preset ${DEMO_PRESET}, which this server does not have` };
  if (!datasets.includes(SAMPLE_NAME)) return { missing: "the sample dataset" };
  const [model] = models;
  if (model === undefined) return { missing: "a base model" };
  return { spec: { ...preset.spec, name: "demo", dataset: { ...object(preset.spec["dataset"]), version: `${SAMPLE_NAME}@latest` }, model: { base_model: model } } };
}
