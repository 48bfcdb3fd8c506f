import { object, textAt, type Json } from "../common/json.ts";

/** Names of the datasets, models and checkpoints in the project, newest first. */
export type Available = { datasets: string[]; models: string[]; checkpoints: string[] };

type Named = { name: string; spec: Json };

/** Fill the empty names of a spec with available objects. Null if the spec names an object that does not exist. */
export function fillNames(spec: Json, available: Available): Json | null {
  const version = resolveName(textAt(spec, "dataset", "version"), available.datasets.map((name) => `${name}@latest`), (name) => available.datasets.includes(name.split("@")[0]!));
  const model = object(spec["model"]) ?? {};
  const source = "checkpoint" in model ? "checkpoint" : "base_model";
  const names = source === "checkpoint" ? available.checkpoints : available.models;
  const weights = resolveName(textAt(model, source), names, (name) => names.includes(name));
  if (version === null || weights === null) return null;
  return { ...spec, dataset: { ...object(spec["dataset"]), version }, model: { ...model, [source]: weights } };
}

function resolveName(name: string, available: string[], exists: (name: string) => boolean): string | null {
  if (name === "") return available[0] ?? null;
  return exists(name) ? name : null;
}

/** Presets whose names all resolve, RL presets before warm starts. The server validates them in this order. */
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
  const needsCheckpoint = "checkpoint" in model; // a base model cannot replace a checkpoint
  const keepsModel = isEmpty && (!needsCheckpoint || textAt(old, "model", "checkpoint") !== "");
  return { ...spec, dataset: { ...object(spec["dataset"]), version }, model: keepsModel ? (object(old["model"]) ?? model) : model };
}
