/** Arithmetic on the points of a chart. The x values of a series increase strictly. */

import { number } from "../common/format.ts";

/** What the server measured in each bucket of a long series: its exact extremes and its number of finite points. */
export type Buckets = { low: number[]; high: number[]; count: number[] };

/** Points of a line. With `buckets` y is the mean of a bucket, and x and `at` (unix seconds) are those of its last point. */
export type Points = { x: number[]; y: number[]; at: number[]; buckets?: Buckets };

export const NO_POINTS: Points = { x: [], y: [], at: [] };

/** Debiased exponential moving average: early values are not biased toward 0. A `weight` of 0 disables smoothing. */
export function smooth(values: number[], weight: number): number[] {
  if (weight <= 0) return values;
  let sum = 0;
  let mass = 0;
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
}

/** Insert a point in order of x. A repeated x keeps the first value (the server counts the conflict). */
export function insert(points: Points, x: number, y: number, at: number): boolean {
  let position = points.x.length;
  while (position > 0 && points.x[position - 1]! >= x) position -= 1;
  if (points.x[position] === x) return false;
  points.x.splice(position, 0, x);
  points.y.splice(position, 0, y);
  points.at.splice(position, 0, at);
  points.buckets?.low.splice(position, 0, y);
  points.buckets?.high.splice(position, 0, y);
  points.buckets?.count.splice(position, 0, 1);
  return true;
}

/** One line after the other. A single point beside buckets is a bucket of one point. */
export function concatenate(lines: Points[]): Points {
  const joined = (column: (line: Points) => number[]) => ([] as number[]).concat(...lines.map(column));
  const points: Points = { x: joined(({ x }) => x), y: joined(({ y }) => y), at: joined(({ at }) => at) };
  if (lines.every(({ buckets }) => buckets === undefined)) return points;
  const buckets: Buckets = {
    low: joined((line) => line.buckets?.low ?? line.y),
    high: joined((line) => line.buckets?.high ?? line.y),
    count: joined((line) => line.buckets?.count ?? line.y.map(() => 1)),
  };
  return { ...points, buckets };
}

/** The points from index `start` up to and without `end`. */
export function slice(points: Points, start: number, end: number): Points {
  const part = { x: points.x.slice(start, end), y: points.y.slice(start, end), at: points.at.slice(start, end) };
  const { buckets } = points;
  if (buckets === undefined) return part;
  return { ...part, buckets: { low: buckets.low.slice(start, end), high: buckets.high.slice(start, end), count: buckets.count.slice(start, end) } };
}

export function emptyLike({ buckets }: Points): Points {
  return { x: [], y: [], at: [], ...(buckets === undefined ? {} : { buckets: { low: [], high: [], count: [] } }) };
}

/**
 * Append a point of `points` at another x. Where the line already has reached that x, its last value stays or, with
 * `newest`, is replaced; the extremes of a bucket that gives way stay in the band.
 */
export function append(result: Points, points: Points, index: number, x: number, keep: "first" | "newest"): void {
  const last = result.x.length - 1;
  const { buckets } = points;
  if (last < 0 || x > result.x[last]!) {
    result.x.push(x);
    result.y.push(points.y[index]!);
    result.at.push(points.at[index]!);
    if (buckets === undefined) return;
    result.buckets!.low.push(buckets.low[index]!);
    result.buckets!.high.push(buckets.high[index]!);
    result.buckets!.count.push(buckets.count[index]!);
    return;
  }
  if (keep === "newest") {
    result.y[last] = points.y[index]!;
    result.at[last] = points.at[index]!;
  }
  if (buckets === undefined) return;
  result.buckets!.low[last] = Math.min(result.buckets!.low[last]!, buckets.low[index]!);
  result.buckets!.high[last] = Math.max(result.buckets!.high[last]!, buckets.high[index]!);
  result.buckets!.count[last]! += buckets.count[index]!;
}

/**
 * Join the same series of several attempts, oldest attempt first. A later attempt resumes from a checkpoint, so from
 * its first point on it replaces the points of the attempts before it.
 */
export function joinAttempts(attempts: Points[]): Points {
  return attempts.reduce<Points>((joined, next) => {
    const start = next.x[0];
    if (start === undefined) return joined;
    const overlap = joined.x.findIndex((x) => x >= start);
    const end = overlap === -1 ? joined.x.length : overlap;
    return concatenate([slice(joined, 0, end), next]);
  }, NO_POINTS);
}

/** The same values over their time of measurement, in seconds since `origin` (unix seconds). */
export function overTime(points: Points, origin: number): Points {
  return overAmount(points, (at) => at - origin);
}

/** The same values over an amount that grows with time, such as the GPU-hours used at `at` (unix seconds). */
export function overAmount(points: Points, amountAt: (at: number) => number): Points {
  const order = points.at.map((_, index) => index).sort((a, b) => points.at[a]! - points.at[b]!);
  const result = emptyLike(points);
  // Of two points at one amount, such as within the clock's resolution, the first stays.
  for (const index of order) append(result, points, index, amountAt(points.at[index]!), "first");
  return result;
}

/**
 * Map values on the time axis to the train step in progress: x between step s and s + 1 is the fraction of that step's
 * time that had passed. `steps` holds the time at which each step was reported.
 */
export function overSteps(points: Points, steps: Points): Points {
  const result = emptyLike(points);
  let next = 0;
  for (let index = 0; index < points.at.length; index += 1) {
    const at = points.at[index]!;
    while (next < steps.at.length && steps.at[next]! <= at) next += 1;
    const before = next - 1;
    if (before < 0) continue; // before the first step there is no step to map to
    const since = steps.at[before]!;
    const until = steps.at[next];
    const width = until === undefined ? 0 : (at - since) / Math.max(until - since, 1e-9);
    const x = steps.x[before]! + width * (until === undefined ? 0 : steps.x[next]! - steps.x[before]!);
    // After the newest step all points share its x: keep the newest value.
    append(result, points, index, x, until === undefined && x === result.x.at(-1) ? "newest" : "first");
  }
  return result;
}

/** The exact smallest and largest value of a line, of a bucket too. Null without points. */
export function extremes({ y, buckets }: Pick<Points, "y" | "buckets">): { min: number; max: number } | null {
  const [lows, highs] = [buckets?.low ?? y, buckets?.high ?? y];
  if (y.length === 0) return null;
  let [min, max] = [lows[0]!, highs[0]!];
  for (const value of lows) if (value < min) min = value;
  for (const value of highs) if (value > max) max = value;
  return { min, max };
}

/** Number of finite points behind a line: of a bucket all of its points. */
export function pointCount({ y, buckets }: Pick<Points, "y" | "buckets">): number {
  return buckets === undefined ? y.length : buckets.count.reduce((sum, count) => sum + count, 0);
}

/** The mean over all points of a line, a bucket weighted by its points. Null without points. */
export function mean({ y, buckets }: Pick<Points, "y" | "buckets">): number | null {
  if (y.length === 0) return null;
  const sum = y.reduce((total, value, index) => total + value * (buckets?.count[index] ?? 1), 0);
  return sum / pointCount(buckets === undefined ? { y } : { y, buckets });
}

/**
 * Padding above and below the values of a chart. Smoothing turns 80 into 80.00000000000001; such a narrow range counts as
 * one value, because no distance between ticks would be large enough to change the number.
 */
export function axisPadding(low: number, high: number): number {
  const size = Math.max(Math.abs(low), Math.abs(high));
  const span = high - low > size * 1e-9 ? high - low : size || 1;
  return span * 0.06;
}

/** Axis labels, formatted with `format` or with enough digits to make adjacent labels distinct. */
export function axisLabels(splits: (number | null)[], format?: (value: number) => string): string[] {
  const labelsWith = (write: (value: number) => string) => splits.map((value) => (value === null ? "" : write(value)));
  if (format !== undefined) return labelsWith(format);
  const labels = labelsWith((value) => number(value, 2));
  const values = splits.filter((value) => value !== null);
  if (new Set(labels.filter((label) => label !== "")).size === values.length) return labels;
  const step = Math.min(...values.slice(1).map((value, index) => Math.abs(value - values[index]!)));
  return labelsWith((value) => value.toFixed(Math.min(9, Math.max(0, Math.ceil(-Math.log10(step))))));
}

/** The value of a line in the legend: at the crosshair if there is one, else the newest. Null without a point there. */
export function legendValue(points: Points, crosshair: { value: number | null | undefined } | null): number | null {
  return (crosshair === null ? points.y.at(-1) : crosshair.value) ?? null;
}

/**
 * A bound that may change over a run, as flat segments from left to right. Each value holds from its x on, the last one
 * up to `end`. Without points the bound is `value` everywhere.
 */
export function boundSegments(points: Points | undefined, value: number, start: number, end: number): { from: number; to: number; value: number }[] {
  if (points === undefined || points.x.length === 0) return [{ from: start, to: end, value }];
  const segments: { from: number; to: number; value: number }[] = [];
  points.x.forEach((x, index) => {
    const last = segments.at(-1);
    const at = index === 0 ? Math.min(start, x) : x;
    if (last?.value === points.y[index]) return;
    if (last !== undefined) last.to = at;
    segments.push({ from: at, to: end, value: points.y[index]! });
  });
  return segments;
}

/**
 * The lines as CSV, one row per x: the values as measured, neither smoothed nor rounded; empty where a line has no point.
 * A line in buckets has columns for the extremes and the number of points of each bucket beside its mean.
 */
export function toCsv(axis: string, lines: { label: string; points: Points }[]): string {
  const quote = (text: string) => `"${text.replaceAll('"', '""')}"`;
  const columns = lines.flatMap(({ label, points: { x, y, buckets } }) => {
    const column = (name: string, values: number[]) => ({ name, cells: new Map(x.map((at, index) => [at, values[index]!])) });
    if (buckets === undefined) return [column(label, y)];
    return [column(label, y), column(`${label} min`, buckets.low), column(`${label} max`, buckets.high), column(`${label} points`, buckets.count)];
  });
  const rows = [...new Set(lines.flatMap(({ points }) => points.x))].sort((a, b) => a - b);
  const header = [axis, ...columns.map(({ name }) => quote(name))];
  return [header, ...rows.map((x) => [x, ...columns.map(({ cells }) => cells.get(x) ?? "")])].map((row) => `${row.join(",")}\n`).join("");
}
