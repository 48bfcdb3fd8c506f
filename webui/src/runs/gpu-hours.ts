import type { Job } from "../api/schema.d.ts";

type SlotUse = { from: number; to: number }; // unix seconds

/** When the slots of a run were held. Jobs that share a slot hold it once. */
export function slotUses(jobs: readonly Pick<Job, "slots" | "started_at" | "ended_at" | "node">[]): SlotUse[] {
  const bySlot = new Map<string, SlotUse[]>();
  for (const { slots, started_at: started, ended_at: ended, node } of jobs) {
    if (started === null) continue;
    const use = { from: Date.parse(started) / 1000, to: ended === null ? Infinity : Date.parse(ended) / 1000 };
    for (const slot of slots) {
      const key = `${node.id}|${slot}`;
      bySlot.set(key, [...(bySlot.get(key) ?? []), use]);
    }
  }
  return [...bySlot.values()].flatMap(merged);
}

function merged(uses: SlotUse[]): SlotUse[] {
  const result: SlotUse[] = [];
  for (const use of [...uses].sort((a, b) => a.from - b.from)) {
    const last = result.at(-1);
    if (last !== undefined && use.from <= last.to) result[result.length - 1] = { from: last.from, to: Math.max(last.to, use.to) };
    else result.push(use);
  }
  return result;
}

/** Hours of all slots together that the run had used at `at` (unix seconds). */
export function gpuHoursAt(uses: readonly SlotUse[], at: number): number {
  return uses.reduce((sum, { from, to }) => sum + Math.max(0, Math.min(at, to) - from), 0) / 3600;
}
