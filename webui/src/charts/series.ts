/** Arithmetic on the points of a chart. The x values of a series increase strictly. */

import { number } from "../common/format.ts";

export type Points = { x: number[]; y: number[]; at: number[] };

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
  return true;
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
    return {
      x: [...joined.x.slice(0, end), ...next.x],
      y: [...joined.y.slice(0, end), ...next.y],
      at: [...joined.at.slice(0, end), ...next.at],
    };
  }, NO_POINTS);
}

/** The same values over their time of measurement, in seconds since `origin` (unix seconds). */
export function overTime(points: Points, origin: number): Points {
  const order = points.at.map((_, index) => index).sort((a, b) => points.at[a]! - points.at[b]!);
  const result: Points = { x: [], y: [], at: [] };
  for (const index of order) {
    const x = points.at[index]! - origin;
    const last = result.x.at(-1);
    if (last !== undefined && x <= last) continue; // two points within the clock's resolution: keep the first
    result.x.push(x);
    result.y.push(points.y[index]!);
    result.at.push(points.at[index]!);
  }
  return result;
}

/**
 * Map values on the time axis to the train step in progress: x between step s and s + 1 is the fraction of that step's
 * time that had passed. `steps` holds the time at which each step was reported.
 */
export function overSteps(points: Points, steps: Points): Points {
  const result: Points = { x: [], y: [], at: [] };
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
    const last = result.x.at(-1);
    if (last !== undefined && x <= last) {
      // After the newest step all points share its x: keep the newest value.
      if (until !== undefined || x < last) continue;
      for (const column of [result.x, result.y, result.at]) column.pop();
    }
    result.x.push(x);
    result.y.push(points.y[index]!);
    result.at.push(at);
  }
  return result;
}

export function extremes(values: number[]): { min: number; max: number } | null {
  if (values.length === 0) return null;
  let [min, max] = [values[0]!, values[0]!];
  for (const value of values) {
    if (value < min) min = value;
    if (value > max) max = value;
  }
  return { min, max };
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

/** The lines as CSV, one row per x: the values as measured, neither smoothed nor rounded; empty where a line has no point. */
export function toCsv(axis: string, lines: { label: string; points: Points }[]): string {
  const quote = (text: string) => `"${text.replaceAll('"', '""')}"`;
  const columns = lines.map(({ points }) => new Map(points.x.map((x, index) => [x, points.y[index]!])));
  const rows = [...new Set(lines.flatMap(({ points }) => points.x))].sort((a, b) => a - b);
  const header = [axis, ...lines.map(({ label }) => quote(label))];
  return [header, ...rows.map((x) => [x, ...columns.map((values) => values.get(x) ?? "")])].map((row) => `${row.join(",")}\n`).join("");
}
