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

/**
 * All columns over the ascending x values that any line has; undefined where a line has no point. Each line's x ascends,
 * so that one pass for each column is enough, whatever the number of lines.
 */
export function alignColumns(lines: { points: Points }[], columns: Column[]): [number[], ...(number | undefined)[][]] {
  const xs = sharedValues(lines) ?? unionOfValues(lines);
  const places = lines.map(({ points }) => {
    if (points.x.length === xs.length) return null; // the same x values
    let next = -1;
    return points.x.map((x) => {
      do next += 1; while (xs[next] !== x);
      return next;
    });
  });
  const aligned = columns.map(({ line, values }) => {
    const at = places[line]!;
    if (at === null) return values;
    const column = new Array<number | undefined>(xs.length);
    at.forEach((place, index) => { column[place] = values[index]; });
    return column;
  });
  return [xs, ...aligned];
}

/** The x values of the longest line if all others begin with the same ones, as the runs of a comparison do. Else null. */
function sharedValues(lines: { points: Points }[]): number[] | null {
  const longest = lines.reduce<number[]>((found, { points }) => (points.x.length > found.length ? points.x : found), []);
  return lines.every(({ points }) => points.x.every((x, index) => x === longest[index])) ? longest : null;
}

function unionOfValues(lines: { points: Points }[]): number[] {
  const all = new Float64Array(lines.reduce((sum, { points }) => sum + points.x.length, 0));
  let filled = 0;
  for (const { points } of lines) {
    all.set(points.x, filled);
    filled += points.x.length;
  }
  all.sort();
  const xs: number[] = [];
  for (const x of all) if (x !== xs.at(-1)) xs.push(x);
  return xs;
}

/** Whether a column has less than three values, which a line alone would hide. */
export function hasFewValues(values: ArrayLike<number | null | undefined>): boolean {
  let found = 0;
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index];
    if (value !== null && value !== undefined && ++found === 3) return false;
  }
  return true;
}

const CROWDED = 20; // points for each pixel of the chart's width, over all of its columns

/** Whether more points are shown than wide lines can keep apart. `shown` is the first and the last index on the x axis. */
export function isCrowded(columns: number, shown: [number, number], pixels: number): boolean {
  return (shown[1] - shown[0] + 1) * columns > CROWDED * pixels;
}
