import { pointerOf, SPEC_FIELDS, type SpecField } from "./spec-schema.ts";

export type Section = { title: string; note: string; kinds: string[]; roots: string[]; first: string[] };

/** The sections of the form. `first` fields are always shown, the other fields of `roots` on demand. */
export const SECTIONS: Section[] = [
  { title: "Run", note: "", kinds: ["rl", "sft", "dpo", "eval"], roots: ["kind", "name", "notes", "seed", "placement", "budget", "secrets"], first: ["/name", "/kind", "/placement/priority", "/seed", "/notes"] },
  { title: "Model", note: "initial weights: a base model or a checkpoint", kinds: ["rl", "sft", "dpo", "eval"], roots: ["model"], first: ["/model/base_model", "/model/checkpoint"] },
  { title: "Dataset", note: "", kinds: ["rl", "sft", "dpo", "eval"], roots: ["dataset"], first: ["/dataset/version", "/dataset/split"] },
  { title: "Reward", note: "", kinds: ["rl", "eval"], roots: ["reward", "workflow"], first: ["/reward/name", "/reward/options", "/reward/scale", "/reward/bias"] },
  {
    title: "Staleness and rollout", note: "", kinds: ["rl"], roots: ["staleness", "rollout"],
    first: ["/staleness/max", "/staleness/on_straggler", "/rollout/engines", "/rollout/group_size", "/rollout/max_concurrent_groups", "/rollout/temperature", "/rollout/max_new_tokens", "/rollout/interruptible"],
  },
  {
    title: "Trainer", note: "", kinds: ["rl"], roots: ["trainer", "weight_sync"],
    first: ["/trainer/total_train_steps", "/trainer/groups_per_step", "/trainer/minibatches", "/trainer/learning_rate", "/trainer/microbatch_tokens", "/trainer/num_ranks"],
  },
  {
    title: "Algorithm", note: "", kinds: ["rl"], roots: ["algorithm"],
    first: ["/algorithm/objective", "/algorithm/clip_low", "/algorithm/clip_high", "/algorithm/importance_weight/mode", "/algorithm/advantage/mean", "/algorithm/advantage/std"],
  },
  { title: "Warm start", note: "", kinds: ["sft"], roots: ["sft"], first: ["/sft/steps", "/sft/batch_size", "/sft/learning_rate", "/sft/stop_at_greedy_accuracy", "/sft/required_greedy_accuracy"] },
  { title: "Preferences", note: "which completion of a pair is better", kinds: ["dpo"], roots: ["dpo"], first: ["/dpo/steps", "/dpo/batch_size", "/dpo/beta", "/dpo/learning_rate", "/dpo/validation_split"] },
  { title: "Evaluation", note: "how the model is scored", kinds: ["eval"], roots: ["evaluation", "rollout"], first: ["/evaluation/prompts", "/evaluation/samples", "/evaluation/greedy", "/evaluation/success_score", "/rollout/max_new_tokens"] },
  { title: "Checkpoints and evaluation", note: "", kinds: ["rl", "sft"], roots: ["checkpoint", "evaluation"], first: ["/checkpoint/every_steps", "/checkpoint/keep_last", "/evaluation/prompts", "/evaluation/split"] },
  { title: "Checkpoints", note: "", kinds: ["dpo"], roots: ["checkpoint"], first: ["/checkpoint/every_steps", "/checkpoint/keep_last"] },
];

/** The visible fields of a section: the `first` ones in their order, then with `showAll` all others. */
export function fieldsOf(section: Section, showAll: boolean): SpecField[] {
  const own = SPEC_FIELDS.filter((field) => section.roots.includes(field.path[0]!));
  const first = section.first.map((pointer) => own.find((field) => pointerOf(field.path) === pointer)).filter((field) => field !== undefined);
  return showAll ? [...first, ...own.filter((field) => !first.includes(field))] : first;
}

/** The fields of a section whose pointer or explanation has every word of the search. */
export function findFields(section: Section, search: string): SpecField[] {
  const words = search.toLowerCase().split(/[\s._/]+/).filter((word) => word !== "");
  return fieldsOf(section, true).filter(({ path, description }) => words.every((word) => `${path.join(" ")} ${description}`.toLowerCase().includes(word)));
}
