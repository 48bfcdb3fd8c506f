/** What the URL says about a comparison: which runs, in which colors, the baseline and the metrics. */

export const MAX_RUNS = 10;
const COLORS = 6;

/** Run ids by position. The position is the run's color, so a run that is removed leaves its place empty. */
export type Slots = readonly (string | null)[];

export type CompareView = {
  slots: Slots;
  baseline: string | null;
  /** chosen metrics; none: the headline ones */
  metrics: string[];
};

export function readCompareView(search: URLSearchParams): CompareView {
  const slots = readSlots(search.get("runs") ?? "");
  const wanted = search.get("baseline");
  const baseline = wanted !== null && slots.includes(wanted) ? wanted : (runIds(slots)[0] ?? null);
  return { slots, baseline, metrics: (search.get("metrics") ?? "").split(",").filter((name) => name !== "") };
}

/** At most ten different runs; what an edited link has beyond is left out. */
function readSlots(text: string): Slots {
  const seen = new Set<string>();
  const slots = text.split(",").map((id) => {
    if (id === "" || seen.has(id)) return null;
    seen.add(id);
    return id;
  });
  return slots.slice(0, MAX_RUNS);
}

export function runIds(slots: Slots): string[] {
  return slots.filter((id) => id !== null);
}

/** The slots with one run more, in the first free place. The same slots if it is there already or ten are. */
export function withRun(slots: Slots, id: string): Slots {
  if (slots.includes(id)) return slots;
  const free = slots.indexOf(null);
  if (free !== -1) return slots.map((one, index) => (index === free ? id : one));
  return slots.length < MAX_RUNS ? [...slots, id] : slots;
}

export function withoutRun(slots: Slots, id: string): Slots {
  return slots.map((one) => (one === id ? null : one));
}

/** The URL after a change; what is the default is left out. */
export function changeCompareView(search: URLSearchParams, change: Partial<CompareView>): URLSearchParams {
  const result = new URLSearchParams(search);
  const set = (name: string, value: string) => { if (value === "") result.delete(name); else result.set(name, value); };
  if (change.slots !== undefined) {
    set("runs", change.slots.map((id) => id ?? "").join(",").replace(/,+$/, ""));
    if (!change.slots.includes(result.get("baseline"))) result.delete("baseline");
  }
  if (change.baseline !== undefined) set("baseline", change.baseline ?? "");
  if (change.metrics !== undefined) set("metrics", change.metrics.join(","));
  return result;
}

/** The page that compares these runs. */
export function comparePath(ids: readonly string[]): string {
  return ids.length === 0 ? "/runs/compare" : `/runs/compare?runs=${ids.join(",")}`;
}

/** How the lines of a run look on all charts. Beyond six colors a line is dashed. */
export function runStyle(slot: number): { color: number; dashed: boolean } {
  return { color: (slot % COLORS) + 1, dashed: slot >= COLORS };
}
