/** The x axes of charts, and where points lie on them. */

import { clock, compact, number } from "../common/format.ts";
import { append, emptyLike, type Points } from "./series.ts";

export type AxisId = "step" | "time" | "version" | "tokens" | "gpu-hours";

type AxisStyle = {
  label: string;
  help: string;
  /** the heading of the column in a CSV */
  column: string;
  tick: (value: number) => string;
  /** one place on the axis, for the readout */
  place: (value: number) => string;
  /** allowed distances between ticks; any distance without them */
  distances?: number[];
};

/** Tick distances for values that are whole numbers. */
export const INTEGER_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000];

const tenth = (value: number) => Math.round(value * 10) / 10;

export const AXES: Record<AxisId, AxisStyle> = {
  step: { label: "Train step", help: "Train steps of the run", column: "step", tick: String, place: (value) => `step ${tenth(value)}`, distances: INTEGER_STEPS },
  version: { label: "Policy version", help: "Version of the policy after the train step", column: "version", tick: String, place: (value) => `version ${tenth(value)}`, distances: INTEGER_STEPS },
  time: { label: "Time", help: "Wall time since the start of the run, pauses included", column: "seconds", tick: clock, place: clock, distances: [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400] },
  tokens: { label: "Tokens", help: "Loss tokens trained on up to the train step", column: "tokens", tick: compact, place: (value) => `${compact(value)} tokens` },
  "gpu-hours": { label: "GPU-hours", help: "Time that the run's jobs have held each of their slots, added up", column: "gpu_hours", tick: (value) => number(value, 2), place: (value) => `${number(value, 3)} GPU-hours` },
};

/** What is known of a run at its steps: x ascending, one value for each. */
export type Reference = { x: readonly number[]; value: readonly number[] };

/** The same values over what `reference` says at or before their step, such as the tokens trained on up to it. */
export function overReference(points: Points, reference: Reference): Points {
  const result = emptyLike(points);
  let next = 0;
  points.x.forEach((step, index) => {
    while (next < reference.x.length && reference.x[next]! <= step) next += 1;
    if (next > 0) append(result, points, index, reference.value[next - 1]!, "newest");
  });
  return result;
}

/** The sums of a series up to each of its points; a bucket adds all of its points. */
export function cumulative({ x, y, buckets }: Points): Reference {
  let sum = 0;
  return { x, value: y.map((value, index) => (sum += value * (buckets?.count[index] ?? 1))) };
}

/** The newest value at each point of a series that never falls: of a bucket its largest. */
export function newestOf({ x, y, buckets }: Points): Reference {
  return { x, value: buckets?.high ?? y };
}
