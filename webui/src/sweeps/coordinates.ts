/** Geometry of parallel coordinates: an axis per parameter and one for the objective, and a line per trial. */

import type { Parameter, Trial } from "../api/schema.d.ts";
import { number } from "../common/format.ts";
import { valueText } from "./trials.ts";

export type Axis = { key: string; label: string; x: number; /** share of the height, 0 at the bottom; null for no value */ position: (value: unknown) => number | null; ticks: { at: number; label: string }[] };

type Scale = Pick<Axis, "position" | "ticks">;

export const OBJECTIVE = "objective";

const LOG_RATIO = 50; // values that span more are spread by their logarithm

/** An axis over numbers, or one step per different value where some are words. */
export function scaleOf(values: readonly unknown[], isLog: boolean): Scale {
  const present = values.filter((value) => value !== null && value !== undefined);
  if (present.length > 0 && present.every((value) => typeof value === "number")) return numericScale(present as number[], isLog);
  const steps = [...new Set(present.map(valueText))].sort((one, other) => one.localeCompare(other));
  const at = (text: string) => (steps.length === 1 ? 0.5 : steps.indexOf(text) / (steps.length - 1));
  return { position: (value) => (value === null || value === undefined ? null : at(valueText(value))), ticks: steps.map((label) => ({ at: at(label), label })) };
}

function numericScale(values: number[], isLog: boolean): Scale {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const curve = (isLog || high / low > LOG_RATIO) && low > 0 ? Math.log : (value: number) => value;
  const [bottom, top] = [curve(low), curve(high)];
  const at = (value: number) => (top === bottom ? 0.5 : (curve(value) - bottom) / (top - bottom));
  const different = [...new Set(values)].sort((one, other) => one - other);
  const shown = different.length <= 6 ? different : [low, high];
  return { position: (value) => (typeof value === "number" ? at(value) : null), ticks: apart(shown.map((value) => ({ at: at(value), label: value === Math.round(value) && Math.abs(value) < 1e6 ? String(value) : number(value) }))) };
}

const MIN_GAP = 0.09; // of the height, so that labels do not overlap

/** The ticks that leave room for each other, the outermost first. */
function apart(ticks: { at: number; label: string }[]): { at: number; label: string }[] {
  const chosen: { at: number; label: string }[] = [];
  for (const tick of [ticks[0], ticks.at(-1), ...ticks.slice(1, -1)]) {
    if (tick !== undefined && chosen.every(({ at }) => Math.abs(at - tick.at) >= MIN_GAP)) chosen.push(tick);
  }
  return chosen.sort((one, other) => one.at - other.at);
}

/** One axis per parameter and the objective as the last, spread over the width. */
export function axesOf(parameters: readonly Pick<Parameter, "pointer" | "scale">[], trials: readonly Trial[], names: ReadonlyMap<string, string>, metric: string, left: number, right: number): Axis[] {
  const gap = (right - left) / Math.max(1, parameters.length);
  const axes = parameters.map(({ pointer, scale }, index): Axis => ({
    key: pointer, label: names.get(pointer) ?? pointer, x: left + index * gap, ...scaleOf(trials.map(({ values }) => values[pointer]), scale === "log"),
  }));
  return [...axes, { key: OBJECTIVE, label: metric, x: right, ...scaleOf(trials.map(({ objective }) => objective), false) }];
}

/** The points of a trial's line. It ends at the last parameter while the trial has no objective. */
export function lineOf(trial: Trial, axes: readonly Axis[], top: number, bottom: number): [number, number][] {
  return axes.flatMap((axis): [number, number][] => {
    const at = axis.position(axis.key === OBJECTIVE ? trial.objective : trial.values[axis.key]);
    return at === null ? [] : [[axis.x, bottom - at * (bottom - top)]];
  });
}

export function pathOf(points: readonly [number, number][]): string {
  return points.map(([x, y], index) => `${index === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

/** From 0 for the worst to 1 for the best trial; null without a value. */
export function ranks(trials: readonly Trial[], goal: "max" | "min"): Map<number, number | null> {
  const valued = trials.filter(({ objective }) => objective !== null).sort((one, other) => (goal === "max" ? 1 : -1) * (one.objective! - other.objective!));
  const rank = new Map(valued.map((trial, index) => [trial.number, valued.length === 1 ? 1 : index / (valued.length - 1)]));
  return new Map(trials.map((trial) => [trial.number, rank.get(trial.number) ?? null]));
}
