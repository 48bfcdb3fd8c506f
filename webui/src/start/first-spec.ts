import { object, textAt, type Json } from "../common/json.ts";

/** What the project has, newest first: a new run starts from it. */
export type Stock = { datasets: string[]; models: string[]; checkpoints: string[] };

type Named = { name: string; spec: Json };

/** The spec with its empty names filled from what is there; null where it names what is not there. */
export function filled(spec: Json, stock: Stock): Json | null {
  const version = named(textAt(spec, "dataset", "version"), stock.datasets.map((name) => `${name}@latest`), (wanted) => stock.datasets.includes(wanted.split("@")[0]!));
  const model = object(spec["model"]) ?? {};
  const source = "checkpoint" in model ? "checkpoint" : "base_model";
  const has = source === "checkpoint" ? stock.checkpoints : stock.models;
  const weights = named(textAt(model, source), has, (wanted) => has.includes(wanted));
  if (version === null || weights === null) return null;
  return { ...spec, dataset: { ...object(spec["dataset"]), version }, model: { ...model, [source]: weights } };
}

function named(wanted: string, there: string[], isThere: (name: string) => boolean): string | null {
  if (wanted === "") return there[0] ?? null;
  return isThere(wanted) ? wanted : null;
}

/** Presets that could be submitted here as far as names say, RL before warm starts: the server judges them in turn. */
export function candidates<P extends Named>(presets: P[], stock: Stock): { preset: P; spec: Json }[] {
  const isWarmStart = ({ spec }: Named) => spec["kind"] === "sft";
  const ordered = [...presets.filter((preset) => !isWarmStart(preset)), ...presets.filter(isWarmStart)];
  return ordered.flatMap((preset) => {
    const spec = filled(preset.spec, stock);
    return spec === null ? [] : [{ preset, spec }];
  });
}

/** Where nothing can be submitted yet: the first preset that leaves data and weights to the reader. */
export function openPreset<P extends Named>(presets: P[]): P | undefined {
  const isOpen = ({ spec }: Named) => textAt(spec, "dataset", "version") === "" && textAt(spec, "model", "base_model") === "" && spec["kind"] !== "sft";
  return presets.find(isOpen) ?? presets[0];
}

/** A preset put in the place of another spec: what it leaves open is taken over from there. */
export function takenOver(spec: Json, old: Json): Json {
  const version = textAt(spec, "dataset", "version") || textAt(old, "dataset", "version");
  const model = object(spec["model"]) ?? {};
  const isOpen = Object.values(model).every((name) => name === "");
  const wantsCheckpoint = "checkpoint" in model; // a base model is no warm start
  const takes = isOpen && (!wantsCheckpoint || textAt(old, "model", "checkpoint") !== "");
  return { ...spec, dataset: { ...object(spec["dataset"]), version }, model: takes ? (object(old["model"]) ?? model) : model };
}
