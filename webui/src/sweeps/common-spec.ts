import type { Run, RunSpecPart } from "../api/schema.d.ts";
import type { Json } from "../common/json.ts";
import { withoutDefaults } from "../start/spec-order.ts";
import { atPoint } from "./sweep-form.ts";

/** What every trial has in common with a run: its spec without defaults, name, notes and seed, and its dataset by name. */
export function commonSpec(run: Pick<Run, "spec" | "dataset">): RunSpecPart {
  const { name: _name, notes: _notes, seed: _seed, ...common } = withoutDefaults(run.spec as unknown as Json);
  return atPoint(common, { "/dataset/version": run.dataset.ref }) as RunSpecPart;
}
