import type { Run } from "../api/schema.d.ts";
import { canStop } from "./ended.ts";

/** Selecting runs of a list, and what can be done with the selected ones at once. */

/** Selects or clears a row; with `from` all rows between the two, as a click with Shift does. */
export function toggleRow(selected: ReadonlySet<string>, ids: readonly string[], index: number, from: number | null): Set<string> {
  const id = ids[index];
  const result = new Set(selected);
  if (id === undefined) return result;
  const select = !selected.has(id);
  const [first, last] = from === null ? [index, index] : [Math.min(from, index), Math.max(from, index)];
  for (const one of ids.slice(first, last + 1)) {
    if (select) result.add(one);
    else result.delete(one);
  }
  return result;
}

/** The row after a key: `j` down, `k` up, without leaving the list. */
export function moveActive(active: number | null, key: "j" | "k", count: number): number | null {
  if (count === 0) return null;
  if (active === null) return key === "j" ? 0 : count - 1;
  return Math.min(count - 1, Math.max(0, active + (key === "j" ? 1 : -1)));
}

type Stoppable = Pick<Run, "id" | "status">;

/** What a bulk stop does: stop active runs, cancel those in the queue, and leave ended ones alone. */
export function stopPlan<R extends Stoppable>(runs: readonly R[]): { stop: R[]; cancel: R[]; left: R[] } {
  const plan = { stop: [] as R[], cancel: [] as R[], left: [] as R[] };
  for (const run of runs) {
    if (!canStop(run.status) || run.status === "DRAFT") plan.left.push(run);
    else if (run.status === "QUEUED") plan.cancel.push(run);
    else plan.stop.push(run);
  }
  return plan;
}

/** The tags of a run after some are added and others removed. Null when nothing changes. */
export function changedTags(tags: readonly string[], add: readonly string[], remove: readonly string[]): string[] | null {
  const result = [...tags.filter((tag) => !remove.includes(tag)), ...add.filter((tag) => !tags.includes(tag))];
  return result.length === tags.length && result.every((tag) => tags.includes(tag)) ? null : result;
}

export type Failure<R> = { run: R; error: unknown };

/** Applies an action to each run, at most `atOnce` at the same time. One failure does not stop the others. */
export async function forEachRun<R>(runs: readonly R[], action: (run: R) => Promise<unknown>, atOnce = 4): Promise<Failure<R>[]> {
  const failures: Failure<R>[] = [];
  const waiting = [...runs];
  const worker = async () => {
    for (let run = waiting.shift(); run !== undefined; run = waiting.shift()) {
      try {
        await action(run);
      } catch (error) {
        failures.push({ run, error });
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, runs.length) }, worker));
  return failures;
}
