/** Words for the statistics of a dataset's columns. */

import type { ColumnStatistics } from "../api/schema.d.ts";
import { grouped, number, percent } from "../common/format.ts";

const LABELS: Record<string, string> = { messages: "Prompt", answer: "Answer", completion: "Completion", chosen: "Chosen", rejected: "Rejected", split: "Split", source: "Source" };

export const columnLabel = (name: string): string => LABELS[name] ?? name;

export const distinctText = ({ distinct, distinct_exact }: Pick<ColumnStatistics, "distinct" | "distinct_exact">): string =>
  `${distinct_exact ? "" : "about "}${grouped(distinct)}`;

/** "-2 to 3", and how many values are numbers when not all are. Null: none is. */
export function rangeText({ rows, missing, numeric, minimum, maximum }: Pick<ColumnStatistics, "rows" | "missing" | "numeric" | "minimum" | "maximum">): string | null {
  if (numeric === 0 || minimum === null || maximum === null) return null;
  const range = minimum === maximum ? number(minimum) : `${number(minimum)} to ${number(maximum)}`;
  const present = rows - missing;
  return numeric === present ? range : `${range} in ${percent(numeric / present)} of the values`;
}

export const frequentText = ({ rows }: { rows: number }, { frequent_exact }: Pick<ColumnStatistics, "frequent_exact">): string =>
  `${frequent_exact ? "" : "at least "}${grouped(rows)} ${rows === 1 ? "row" : "rows"}`;
