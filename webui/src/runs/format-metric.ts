/** Reduce the lines of a metric to the one value that the header of the run shows. */

type Line = { points: { y: number[] } };

/** The newest value, summed over the lines (one per source). Null before the first point. */
export function newest(lines: Line[]): number | null {
  return sumOverLines(lines, (values) => values.at(-1)!);
}

/** The mean of each line, summed over the lines: the value for a run that ended. */
export function mean(lines: Line[]): number | null {
  return sumOverLines(lines, (values) => values.reduce((sum, value) => sum + value, 0) / values.length);
}

function sumOverLines(lines: Line[], reduceLine: (values: number[]) => number): number | null {
  const values = lines.map(({ points }) => points.y).filter((y) => y.length > 0);
  return values.length === 0 ? null : values.reduce((sum, y) => sum + reduceLine(y), 0);
}
