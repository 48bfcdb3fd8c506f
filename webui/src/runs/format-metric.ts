/** Reduce the lines of a metric to the one value that the header of the run shows. */

import { mean as meanOf, type Points } from "../charts/series.ts";

type Line = { points: Pick<Points, "y" | "buckets"> };

/** The newest value, summed over the lines (one per source). Null before the first point. */
export function newest(lines: Line[]): number | null {
  return sumOverLines(lines, ({ y }) => y.at(-1) ?? null);
}

/** The mean of each line over all of its points, summed over the lines: the value for a run that ended. */
export function mean(lines: Line[]): number | null {
  return sumOverLines(lines, meanOf);
}

function sumOverLines(lines: Line[], reduceLine: (points: Line["points"]) => number | null): number | null {
  const values = lines.map(({ points }) => reduceLine(points)).filter((value) => value !== null);
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0);
}
