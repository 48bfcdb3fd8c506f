/** The columns that uPlot draws: of each line the raw values, the smoothed ones and, in buckets, both edges of its band. */

import { smooth, type Points } from "./series.ts";

export type Role = "raw" | "smoothed" | "low" | "high";

export type Column = { line: number; role: Role; values: number[] };

/** The columns of all lines in drawing order, the band first. `exact` lines are never smoothed. */
export function plotColumns(lines: { points: Points; exact?: boolean }[], smoothing: number): Column[] {
  return lines.flatMap(({ points, exact }, line) => {
    const column = (role: Role, values: number[]): Column => ({ line, role, values });
    const { y, buckets } = points;
    const band = buckets === undefined ? [] : [column("low", buckets.low), column("high", buckets.high)];
    return [...band, column("raw", y), column("smoothed", smooth(y, exact ? 0 : smoothing))];
  });
}

/** Pairs of series numbers (1 is the first column) whose gap uPlot fills: upper edge first. */
export function bandPairs(columns: Pick<Column, "role">[]): { series: [number, number] }[] {
  return columns.flatMap(({ role }, index) => (role === "high" ? [{ series: [index + 1, index] as [number, number] }] : []));
}
