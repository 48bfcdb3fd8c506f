import type { Checkpoint } from "../api/schema.d.ts";
import { number } from "../common/format.ts";
import type { Option } from "./spec-field.tsx";

type Stored = Pick<Checkpoint, "id" | "run" | "step" | "kind" | "state" | "metrics" | "aliases">;

/** Stored checkpoints to begin a run with: those that exist for it (kind weights) first, then those of training, each newest first. */
export function checkpointOptions(checkpoints: Stored[]): Option[] {
  const stored = checkpoints.filter((entry) => entry.state === "STORED");
  const ordered = [...stored.filter((entry) => entry.kind === "weights"), ...stored.filter((entry) => entry.kind !== "weights")];
  return ordered.map((entry) => ({ value: entry.id, label: labelOf(entry) }));
}

function labelOf({ id, run, step, kind, metrics, aliases }: Stored): string {
  const reward = metrics["reward_mean"];
  const facts = [`${run.name}, step ${step}`, kind, ...(typeof reward === "number" ? [`mean reward ${number(reward, 3)}`] : []), id];
  return [...aliases, ...facts].join(" · ");
}
