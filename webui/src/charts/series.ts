/** Arithmetic on the points of a chart. A series' x rises strictly. */

import { number } from "../common/format.ts";

export type Points = { x: number[]; y: number[]; at: number[] };

export const NO_POINTS: Points = { x: [], y: [], at: [] };

/** Debiased exponential moving average: early values are not pulled towards 0. `weight` 0 changes nothing. */
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

/** Adds a point where it belongs; a repeated x keeps the first value (the server counts the conflict). */
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
 * One line out of the same series of several attempts, oldest attempt first. A later attempt resumes from a
 * checkpoint: from its first point on it replaces what the lost attempt had measured.
 */
export function joinAttempts(attempts: Points[]): Points {
  return attempts.reduce<Points>((joined, next) => {
    const start = next.x[0];
    if (start === undefined) return joined;
    const kept = joined.x.findIndex((x) => x >= start);
    const end = kept === -1 ? joined.x.length : kept;
    return {
      x: [...joined.x.slice(0, end), ...next.x],
      y: [...joined.y.slice(0, end), ...next.y],
      at: [...joined.at.slice(0, end), ...next.at],
    };
  }, NO_POINTS);
}

/** The same values over the moments they were measured at, in seconds since `origin` (unix seconds). */
export function overTime(points: Points, origin: number): Points {
  const order = points.at.map((_, index) => index).sort((a, b) => points.at[a]! - points.at[b]!);
  const result: Points = { x: [], y: [], at: [] };
  for (const index of order) {
    const x = points.at[index]! - origin;
    const last = result.x.at(-1);
    if (last !== undefined && x <= last) continue; // two points within the clock's resolution: the first stands
    result.x.push(x);
    result.y.push(points.y[index]!);
    result.at.push(points.at[index]!);
  }
  return result;
}

/**
 * Values measured by the clock, over the train step that was under way: x between step s and s + 1 is how much
 * of that step's time had passed. `steps` holds when each step was reported.
 */
export function overSteps(points: Points, steps: Points): Points {
  const result: Points = { x: [], y: [], at: [] };
  let next = 0;
  for (let index = 0; index < points.at.length; index += 1) {
    const at = points.at[index]!;
    while (next < steps.at.length && steps.at[next]! <= at) next += 1;
    const before = next - 1;
    if (before < 0) continue; // before the first step there is no step to place it at
    const since = steps.at[before]!;
    const until = steps.at[next];
    const width = until === undefined ? 0 : (at - since) / Math.max(until - since, 1e-9);
    const x = steps.x[before]! + width * (until === undefined ? 0 : steps.x[next]! - steps.x[before]!);
    const last = result.x.at(-1);
    if (last !== undefined && x <= last) {
      // Since the newest step all moments share its x: the newest value stands there.
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
 * Room above and below the values of a chart. Smoothing makes 80.00000000000001 of 80: a range as narrow as that
 * counts as one value, since no step from tick to tick would be large enough to change the number.
 */
export function paddingOf(low: number, high: number): number {
  const size = Math.max(Math.abs(low), Math.abs(high));
  const span = high - low > size * 1e-9 ? high - low : size || 1;
  return span * 0.06;
}

/** Labels of an axis: as `format` writes them; without one, with as many digits as tell neighbours apart. */
export function axisLabels(splits: (number | null)[], format?: (value: number) => string): string[] {
  const written = (write: (value: number) => string) => splits.map((value) => (value === null ? "" : write(value)));
  if (format !== undefined) return written(format);
  const labels = written((value) => number(value, 2));
  const values = splits.filter((value) => value !== null);
  if (new Set(labels.filter((label) => label !== "")).size === values.length) return labels;
  const step = Math.min(...values.slice(1).map((value, index) => Math.abs(value - values[index]!)));
  return written((value) => value.toFixed(Math.min(9, Math.max(0, Math.ceil(-Math.log10(step))))));
}

/** What a legend shows of a line: its newest value, or under the crosshair the value there; null where it has none. */
export function shownValue(points: Points, crosshair: { value: number | null | undefined } | null): number | null {
  return (crosshair === null ? points.y.at(-1) : crosshair.value) ?? null;
}

/**
 * A bound that may have changed, as flat pieces from left to right: each value holds from its x on, the last one to
 * `end`. Without points it is `value` everywhere.
 */
export function boundPieces(points: Points | undefined, value: number, start: number, end: number): { from: number; to: number; value: number }[] {
  if (points === undefined || points.x.length === 0) return [{ from: start, to: end, value }];
  const pieces: { from: number; to: number; value: number }[] = [];
  points.x.forEach((x, index) => {
    const last = pieces.at(-1);
    const at = index === 0 ? Math.min(start, x) : x;
    if (last?.value === points.y[index]) return;
    if (last !== undefined) last.to = at;
    pieces.push({ from: at, to: end, value: points.y[index]! });
  });
  return pieces;
}
