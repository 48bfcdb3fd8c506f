/** The part of the x axis that is looked at, and its points at full resolution. */

import { concatenate, slice, type Points } from "./series.ts";

export type Range = { min: number; max: number };

/** The series' own x values (steps, or seconds of an attempt) of a part of a line; without an end the part is open. */
export type Span = { from: number | undefined; to: number | undefined; fromAt: number; toAt: number };

/** Whether a point stands for more than one. */
function isReduced(points: Points, index: number): boolean {
  return (points.buckets?.count[index] ?? 1) > 1;
}

/**
 * The part of a line that is reduced to buckets and visible in `zoom`, with the neighbor on each side. Null if every
 * visible point is a single one. `placed` is the line as it lies on the chart's axis.
 */
export function reducedSpan(points: Points, placed: Points, zoom: Range): Span | null {
  const visible = placed.at.filter((_, index) => placed.x[index]! >= zoom.min && placed.x[index]! <= zoom.max);
  let first: number;
  let last: number;
  if (visible.length > 0) {
    const [fromAt, toAt] = [Math.min(visible[0]!, visible.at(-1)!), Math.max(visible[0]!, visible.at(-1)!)];
    first = points.at.findIndex((at) => at >= fromAt) - 1;
    last = points.at.findLastIndex((at) => at <= toAt) + 1;
  } else { // between two points
    last = placed.x.findIndex((x) => x > zoom.max);
    if (last < 1) return null;
    last = points.at.indexOf(placed.at[last]!);
    first = last - 1;
  }
  [first, last] = [Math.max(0, first), Math.min(points.x.length - 1, last)];
  while (last >= first && !isReduced(points, last)) last -= 1; // the live end has single points already
  while (first <= last && !isReduced(points, first)) first += 1;
  if (first > last) return null;
  return {
    from: first === 0 ? undefined : points.x[first - 1]! + 1, // x of a bucket is that of its last point
    to: points.x[last],
    fromAt: first === 0 ? -Infinity : points.at[first - 1]!,
    toAt: points.at[last]!,
  };
}

/** The line with a part of it in finer points. The part is found by its time, because x starts again with each attempt on the time axis. */
export function withDetail(points: Points, detail: Points, { fromAt, toAt }: Span): Points {
  const first = points.at.findIndex((at) => at > fromAt);
  const last = points.at.findLastIndex((at) => at <= toAt);
  if (first === -1 || last < first) return points;
  const inside = detail.at.map((at, index) => [at, index] as const).filter(([at]) => at > fromAt && at <= toAt).map(([, index]) => index);
  if (inside.length === 0) return points;
  return concatenate([slice(points, 0, first), slice(detail, inside[0]!, inside.at(-1)! + 1), slice(points, last + 1, points.x.length)]);
}
