import type { RewardTest, Run } from "../api/schema.d.ts";

type Spec = Run["spec"];
type Reward = Pick<Spec["reward"], "name" | "function" | "options">;

/** What names a reward in a spec: the function or the built-in name, and the options that are set. */
function choiceOf({ name, function: ref, options = {} }: Reward): Record<string, unknown> {
  return { ...(ref === null ? { name } : { function: ref }), ...(Object.keys(options).length > 0 ? { options } : {}) };
}

/** The reward section of a spec with what was tested, as YAML. JSON values are YAML too. */
export function rewardLines(reward: Reward): string {
  return `reward:\n${Object.entries(choiceOf(reward)).map(([key, value]) => `  ${key}: ${typeof value === "string" ? value : JSON.stringify(value)}\n`).join("")}`;
}

/** The start page with the reward, the dataset version and the weights of the test. */
export function startLink(test: Pick<RewardTest, "dataset">, spec: Pick<Spec, "model"> & { reward: Reward }): string {
  const { checkpoint, base_model } = spec.model;
  const weights: Record<string, string> = checkpoint ? { checkpoint } : base_model ? { model: base_model } : {};
  return `/runs/new?${new URLSearchParams({ dataset: test.dataset.ref, ...weights, reward: JSON.stringify(choiceOf(spec.reward)) })}`;
}
