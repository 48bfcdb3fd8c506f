/** Names, order and progress of a sweep's trials. */

import type { Sweep, Trial } from "../api/schema.d.ts";
import { number } from "../common/format.ts";

export type Goal = "max" | "min";

const SHORTEST = 5; // a shorter last part, such as max or name, says too little alone

/** A short label for each pointer: its last part, or all of it where that is short or two would be equal. */
export function labels(pointers: readonly string[]): Map<string, string> {
  const last = (pointer: string) => pointer.slice(pointer.lastIndexOf("/") + 1);
  const counts = new Map<string, number>();
  for (const pointer of pointers) counts.set(last(pointer), (counts.get(last(pointer)) ?? 0) + 1);
  return new Map(pointers.map((pointer) => [pointer, counts.get(last(pointer)) === 1 && last(pointer).length >= SHORTEST ? last(pointer) : pointer.slice(1).replaceAll("/", ".")]));
}

export function valueText(value: unknown): string {
  if (typeof value === "number") return Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value) : number(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function isBetter(one: number, other: number, goal: Goal): boolean {
  return goal === "max" ? one > other : one < other;
}

/** The best objective after each trial, in the order in which they were started; trials without a value are left out. */
export function bestSoFar(trials: readonly Pick<Trial, "number" | "objective">[], goal: Goal): { number: number; value: number; best: number }[] {
  let best: number | null = null;
  return [...trials].sort((one, other) => one.number - other.number).flatMap(({ number: trial, objective }) => {
    if (objective === null) return [];
    best = best === null || isBetter(objective, best, goal) ? objective : best;
    return [{ number: trial, value: objective, best }];
  });
}

export type SortKey = "number" | "objective" | "step" | `/${string}`;

/** Trials by a column; those without a value come last in both directions. */
export function sorted(trials: readonly Trial[], key: SortKey, descending: boolean): Trial[] {
  const value = (trial: Trial): unknown => (key === "number" ? trial.number : key === "objective" ? trial.objective : key === "step" ? trial.train_step : trial.values[key]);
  const order = (one: unknown, other: unknown) => (typeof one === "number" && typeof other === "number" ? one - other : valueText(one).localeCompare(valueText(other)));
  return [...trials].sort((one, other) => {
    const [left, right] = [value(one), value(other)];
    if (left == null || right == null) return left == null ? (right == null ? one.number - other.number : 1) : -1;
    return (descending ? -order(left, right) : order(left, right)) || one.number - other.number;
  });
}

/** How far a sweep is, in words: `9 of 14 ended, 3 run, 2 wait`. */
export function progressText({ counts, trials }: Pick<Sweep, "counts" | "trials">): string {
  const count = (state: string) => counts[state] ?? 0;
  const ended = count("succeeded") + count("stopped") + count("failed");
  const parts = [`${ended} of ${trials} ended`];
  for (const [state, says] of [["running", "active"], ["waiting", "waiting"], ["failed", "failed"], ["skipped", "skipped"]] as const) if (count(state) > 0) parts.push(`${count(state)} ${says}`);
  return parts.join(", ");
}

export type SweepAction = "pause" | "resume" | "cancel";

/** The actions that a status allows. */
export function actionsOf(status: Sweep["status"]): SweepAction[] {
  if (status === "RUNNING") return ["pause", "cancel"];
  return status === "PAUSED" ? ["resume", "cancel"] : [];
}

/** What an action does to the trials of this sweep. */
export function effects(action: SweepAction, { counts }: Pick<Sweep, "counts">): string {
  const [active, waiting] = [counts["running"] ?? 0, counts["waiting"] ?? 0];
  const runs = active === 0 ? "No run is active" : `${active} active run${active === 1 ? "" : "s"}`;
  if (action === "pause") return active === 0 ? "No new runs start until you resume the sweep." : `${runs} save${active === 1 ? "s" : ""} a checkpoint and release${active === 1 ? "s" : ""} the slots. No new runs start until you resume the sweep.`;
  if (action === "resume") return `Runs that the sweep paused continue from their checkpoints, and ${waiting} waiting trial${waiting === 1 ? "" : "s"} can start.`;
  const lost = active === 0 ? "" : `${runs} end${active === 1 ? "s" : ""} without a last checkpoint: work since the newest one is lost. `;
  return `${lost}${waiting} waiting trial${waiting === 1 ? " is" : "s are"} skipped. Results so far stay. A canceled sweep cannot be resumed.`;
}
