import type { MappingRequest as Mapping } from "../api/schema.d.ts";

const COMMON_NAMES: Record<"prompt_column" | "answer_column" | "completion_column" | "split_column" | "source_column", string[]> = {
  prompt_column: ["prompt", "question", "problem", "input", "instruction", "query"],
  answer_column: ["answer", "solution", "target", "expected", "label", "output", "ground_truth"],
  completion_column: ["completion", "demonstration", "response", "rationale", "solution"],
  split_column: ["split", "subset", "fold"],
  source_column: ["data_source"],
};

/** Guess the mapping from the column names. The user sees it rendered and can correct it. */
export function guessMapping(columns: string[]): Mapping {
  const find = (names: string[]) => names.map((name) => columns.find((column) => column.toLowerCase() === name)).find((column) => column !== undefined);
  const answer = find(COMMON_NAMES.answer_column) ?? "";
  const completion = find(COMMON_NAMES.completion_column.filter((name) => name !== answer.toLowerCase()));
  return {
    prompt_column: find(COMMON_NAMES.prompt_column) ?? "",
    answer_column: answer,
    completion_column: completion ?? null,
    split_column: find(COMMON_NAMES.split_column) ?? null,
    source_column: find(COMMON_NAMES.source_column) ?? null,
    default_split: "train",
    template: "{prompt}",
    system: "",
  };
}
