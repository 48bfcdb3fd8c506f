import { object, textAt, type Json } from "../common/json.ts";

/** What a run begins with: data of the user, the demo, or stored weights. */
export type Origin = "data" | "demo" | "checkpoint";

export const ORIGINS: Origin[] = ["data", "demo", "checkpoint"];

/** Names of the datasets and models in the project, newest first, and whether it has a stored checkpoint. */
export type Available = { datasets: string[]; models: string[]; hasCheckpoint: boolean };

type Named = { name: string; spec: Json };

/** The algorithm that a project begins with, if the server has it. */
const STANDARD = "grpo";

/** A preset that names its dataset is a demo; the others take the user's data. */
function isDemo({ spec }: Named): boolean {
  return textAt(spec, "dataset", "version") !== "";
}

function sampleNames(presets: Named[]): Set<string> {
  return new Set(presets.filter(isDemo).map(({ spec }) => nameOf(textAt(spec, "dataset", "version"))));
}

function nameOf(version: string): string {
  return version.split("@")[0]!;
}

/** The presets of an origin. The standard algorithm comes first, then the others in the server's order. */
export function presetsOf<P extends Named>(origin: Origin, presets: P[]): P[] {
  if (origin === "demo") return presets.filter(isDemo);
  const own = presets.filter((preset) => !isDemo(preset));
  return [...own.filter(({ name }) => name === STANDARD), ...own.filter(({ name }) => name !== STANDARD)];
}

/** The origin that a project begins with: its own data, else the demo. */
export function originOf(presets: Named[], available: Available): Origin {
  const samples = sampleNames(presets);
  return available.datasets.some((name) => !samples.has(name)) || presetsOf("demo", presets).length === 0 ? "data" : "demo";
}

/** The origin that fits a spec. */
export function originOfSpec(presets: Named[], spec: Json): Origin {
  if (object(spec["model"])?.["checkpoint"] !== undefined) return "checkpoint";
  return sampleNames(presets).has(nameOf(textAt(spec, "dataset", "version"))) ? "demo" : "data";
}

/** The demo continues with reinforcement learning once there is a checkpoint to begin with. */
export function defaultPreset<P extends Named>(origin: Origin, presets: P[], { hasCheckpoint }: Available): P | undefined {
  const candidates = presetsOf(origin, presets);
  const fitting = candidates.find(({ spec }) => ("checkpoint" in (object(spec["model"]) ?? {})) === (origin === "demo" && hasCheckpoint));
  return fitting ?? candidates[0];
}

/**
 * The spec of a preset for an origin. Names that the preset leaves empty come from the old spec, else from the newest objects
 * of the project. A checkpoint decides what a run learns, so it is never chosen for the user.
 */
export function specFor(origin: Origin, preset: Named, presets: Named[], available: Available, old: Json = {}): Json {
  const model = object(preset.spec["model"]) ?? {};
  const { base_model: base, checkpoint, ...rest } = model; // lora stays
  const beginsWithCheckpoint = origin === "checkpoint" || (checkpoint !== undefined && base === undefined);
  const weights = beginsWithCheckpoint
    ? { checkpoint: textAt(old, "model", "checkpoint") }
    : { base_model: firstKnown([typeof base === "string" ? base : "", textAt(old, "model", "base_model")], available.models) };
  return { ...preset.spec, dataset: { ...object(preset.spec["dataset"]), version: versionFor(preset, presets, available, old) }, model: { ...weights, ...rest } };
}

function versionFor(preset: Named, presets: Named[], { datasets }: Available, old: Json): string {
  const own = textAt(preset.spec, "dataset", "version");
  if (own !== "") return own;
  const samples = sampleNames(presets);
  const before = textAt(old, "dataset", "version");
  if (before !== "" && !samples.has(nameOf(before))) return before;
  const newest = datasets.find((name) => !samples.has(name)) ?? datasets[0];
  return newest === undefined ? "" : `${newest}@latest`;
}

function firstKnown(names: string[], known: string[]): string {
  return names.find((name) => name !== "" && known.includes(name)) ?? known[0] ?? names.find((name) => name !== "") ?? "";
}

/** Whether the spec waits for the user to choose the checkpoint that it begins with. */
export function needsCheckpoint(spec: Json): boolean {
  return object(spec["model"])?.["checkpoint"] === "";
}

/** The dataset of the demo. */
export const SAMPLE = "letter-sum";

/** Whether the project lacks the sample dataset or a base model, which the demo needs. */
export const lacksSample = ({ datasets, models }: Available): boolean => !datasets.includes(SAMPLE) || models.length === 0;
