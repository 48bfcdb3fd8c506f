import { object, type Json } from "../common/json.ts";
import type { FunctionVersion } from "./types.ts";

/** The address of the start page with a function in its place of the spec. `more`: dataset, model or checkpoint. */
export function startWith({ kind, ref }: Pick<FunctionVersion, "kind" | "ref">, more: Record<string, string> = {}): string {
  return `/runs/new?${new URLSearchParams({ ...more, ...(kind === "reward" ? { reward: JSON.stringify({ function: ref }) } : { [kind]: ref }) })}`;
}

/** The spec with the reward, workflow and loss that the address of the start page names. A reward replaces the section. */
export function withFunctions(spec: Json, search: URLSearchParams): Json {
  const [workflow, loss] = [search.get("workflow"), search.get("loss")];
  const reward = rewardOf(search.get("reward"));
  return {
    ...spec,
    ...(reward === null ? {} : { reward }),
    ...(workflow === null ? {} : { workflow: { ...object(spec["workflow"]), function: workflow } }),
    ...(loss === null ? {} : { algorithm: { ...object(spec["algorithm"]), loss_function: loss } }),
  };
}

function rewardOf(text: string | null): Json | null {
  if (text === null) return null;
  try {
    return object(JSON.parse(text));
  } catch {
    return null; // Not written by this dashboard: the spec keeps its reward.
  }
}
