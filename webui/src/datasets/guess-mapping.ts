import type { MappingRequest as Mapping } from "../api/schema.d.ts";

export type ColumnKey = "prompt_column" | "answer_column" | "completion_column" | "chosen_column" | "rejected_column" | "split_column" | "source_column";

const COMMON_NAMES: Record<ColumnKey, string[]> = {
  prompt_column: ["prompt", "question", "problem", "input", "instruction", "query"],
  answer_column: ["answer", "solution", "target", "expected", "label", "output", "ground_truth"],
  completion_column: ["completion", "demonstration", "response", "rationale", "solution"],
  chosen_column: ["chosen", "preferred"],
  rejected_column: ["rejected", "dispreferred"],
  split_column: ["split", "subset", "fold"],
  source_column: ["data_source"],
};

/** Guess the mapping from the column names. The user sees it rendered and can correct it. */
export function guessMapping(columns: string[]): Mapping {
  const find = (names: string[]) => names.map((name) => columns.find((column) => column.toLowerCase() === name)).find((column) => column !== undefined);
  const answer = find(COMMON_NAMES.answer_column) ?? "";
  const completion = find(COMMON_NAMES.completion_column.filter((name) => name !== answer.toLowerCase()));
  const [chosen, rejected] = [find(COMMON_NAMES.chosen_column), find(COMMON_NAMES.rejected_column)];
  const isPair = chosen !== undefined && rejected !== undefined;
  return {
    prompt_column: find(COMMON_NAMES.prompt_column) ?? "",
    answer_column: answer === "" && isPair ? null : answer,
    completion_column: completion ?? null,
    chosen_column: isPair ? chosen : null,
    rejected_column: isPair ? rejected : null,
    split_column: find(COMMON_NAMES.split_column) ?? null,
    source_column: find(COMMON_NAMES.source_column) ?? null,
    default_split: "train",
    template: "{prompt}",
    system: "",
  };
}

/** Whether the mapping names all that rows need: a prompt, and an answer or a pair of completions. */
export function isComplete({ prompt_column, answer_column, chosen_column, rejected_column }: Mapping): boolean {
  const hasPair = Boolean(chosen_column) && Boolean(rejected_column);
  return prompt_column !== "" && Boolean(chosen_column) === Boolean(rejected_column) && (hasPair || Boolean(answer_column));
}
