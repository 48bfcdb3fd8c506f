import type { MappingRequest as Mapping } from "../api/schema.d.ts";

const USUAL: Record<"prompt_column" | "answer_column" | "completion_column" | "split_column", string[]> = {
  prompt_column: ["prompt", "question", "problem", "input", "instruction", "query"],
  answer_column: ["answer", "solution", "target", "expected", "label", "output", "ground_truth"],
  completion_column: ["completion", "demonstration", "response", "rationale", "solution"],
  split_column: ["split", "subset", "fold"],
};

/** A first proposal from the columns' names; the reader sees it rendered and corrects it. */
export function guessMapping(columns: string[]): Mapping {
  const find = (names: string[]) => names.map((name) => columns.find((column) => column.toLowerCase() === name)).find((column) => column !== undefined);
  const answer = find(USUAL.answer_column) ?? "";
  const completion = find(USUAL.completion_column.filter((name) => name !== answer.toLowerCase()));
  return {
    prompt_column: find(USUAL.prompt_column) ?? "",
    answer_column: answer,
    completion_column: completion ?? null,
    split_column: find(USUAL.split_column) ?? null,
    default_split: "train",
    template: "{prompt}",
    system: "",
  };
}
