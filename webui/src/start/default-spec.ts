import { object, textAt, type Json } from "../common/json.ts";

/** Names of the datasets and models in the project, newest first, and whether it has a stored checkpoint. */
export type Available = { datasets: string[]; models: string[]; hasCheckpoint: boolean };

type Named = { name: string; spec: Json };

/**
 * Fill the empty names of a spec with available objects. Null if there is none or the spec names one that does not exist.
 * A checkpoint decides what a run learns, so an empty one stays empty: the user chooses it.
 */
export function fillNames(spec: Json, available: Available): Json | null {
  const version = resolveName(textAt(spec, "dataset", "version"), available.datasets.map((name) => `${name}@latest`), (name) => available.datasets.includes(name.split("@")[0]!));
  const model = object(spec["model"]) ?? {};
  if (version === null) return null;
  const dataset = { ...object(spec["dataset"]), version };
  if ("checkpoint" in model) return available.hasCheckpoint ? { ...spec, dataset } : null;
  const base = resolveName(textAt(model, "base_model"), available.models, (name) => available.models.includes(name));
  return base === null ? null : { ...spec, dataset, model: { ...model, base_model: base } };
}

/** Whether the spec waits for the user to choose the checkpoint that it begins with. */
export function needsCheckpoint(spec: Json): boolean {
  return object(spec["model"])?.["checkpoint"] === "";
}

function resolveName(name: string, available: string[], exists: (name: string) => boolean): string | null {
  if (name === "") return available[0] ?? null;
  return exists(name) ? name : null;
}

/** Presets whose names all resolve or are left to the user, RL presets before warm starts. */
export function candidates<P extends Named>(presets: P[], available: Available): { preset: P; spec: Json }[] {
  const isWarmStart = ({ spec }: Named) => spec["kind"] === "sft";
  const ordered = [...presets.filter((preset) => !isWarmStart(preset)), ...presets.filter(isWarmStart)];
  return ordered.flatMap((preset) => {
    const spec = fillNames(preset.spec, available);
    return spec === null ? [] : [{ preset, spec }];
  });
}

/** The preset for a project where none can be submitted yet: the first one without a dataset and a model. */
export function fallbackPreset<P extends Named>(presets: P[]): P | undefined {
  const hasNoNames = ({ spec }: Named) => textAt(spec, "dataset", "version") === "" && textAt(spec, "model", "base_model") === "" && spec["kind"] !== "sft";
  return presets.find(hasNoNames) ?? presets[0];
}

/** Replace a spec with a preset. The dataset and the weights that the preset leaves empty come from the old spec. */
export function applyPreset(spec: Json, old: Json): Json {
  const version = textAt(spec, "dataset", "version") || textAt(old, "dataset", "version");
  const model = object(spec["model"]) ?? {};
  const isEmpty = Object.values(model).every((name) => name === "");
  const beginsWithCheckpoint = "checkpoint" in model; // a base model cannot replace a checkpoint
  const keepsModel = isEmpty && (!beginsWithCheckpoint || textAt(old, "model", "checkpoint") !== "");
  return { ...spec, dataset: { ...object(spec["dataset"]), version }, model: keepsModel ? (object(old["model"]) ?? model) : model };
}
