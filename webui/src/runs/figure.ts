/** Points of a metric's lines, as one figure beside the run's name. */
type Line = { points: { y: number[] } };

/** The newest value, summed over the lines (one for each source); null before the first point. */
export function newest(lines: Line[]): number | null {
  return sumOf(lines, (values) => values.at(-1)!);
}

/** The mean of each line's points, summed over the lines: what a run that has ended did on the whole. */
export function meanOfAll(lines: Line[]): number | null {
  return sumOf(lines, (values) => values.reduce((sum, value) => sum + value, 0) / values.length);
}

function sumOf(lines: Line[], one: (values: number[]) => number): number | null {
  const values = lines.map(({ points }) => points.y).filter((y) => y.length > 0);
  return values.length === 0 ? null : values.reduce((sum, y) => sum + one(y), 0);
}
