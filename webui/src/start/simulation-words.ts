import type { SimulatedLayout, Simulation } from "../api/schema.d.ts";
import { number } from "../common/format.ts";
import { count } from "./faults.ts";

export function splitText({ engines, trainer_ranks: ranks }: Pick<SimulatedLayout, "engines" | "trainer_ranks">): string {
  return `${count(engines, "engine")} and ${count(ranks, "trainer rank")}`;
}

/** Where the service times and the completion lengths come from. */
export function sourceText({ source, lengths }: Pick<Simulation, "source" | "lengths">): string {
  const times = source.kind === "measured" ? `measured in ${count(source.from_runs, "earlier run")}` : `from the data sheet of ${source.gpu ?? "the GPU"}`;
  const origin = { given: "given", measured: "measured", assumed: "assumed: half of the limit" }[source.lengths];
  return `${times}; completions of ${number(lengths.mean)} tokens (${origin})`;
}

/** In what a row of the table differs from the best split. */
export function changeText(layout: SimulatedLayout, best: SimulatedLayout): string {
  if (layout.change !== "") return layout.change;
  const changes = [
    layout.engines !== best.engines || layout.trainer_ranks !== best.trainer_ranks ? splitText(layout) : "",
    layout.max_staleness !== best.max_staleness ? `max staleness ${layout.max_staleness}` : "",
    layout.groups_per_step !== best.groups_per_step ? `${layout.groups_per_step} groups per step` : "",
  ].filter(Boolean);
  return changes.join(", ") || "the fastest split";
}
