import type { paths } from "../api/schema.d.ts";

/** The view of the run list that the URL holds: filters as the API names them, and the sort order. */

export type RunListQuery = Omit<NonNullable<paths["/api/v1/runs"]["get"]["parameters"]["query"]>, "cursor" | "limit">;

/** Conditions that the "Needs attention" filter selects. */
export const ATTENTION = "NEEDS_ATTENTION,DEGRADED,UNRESPONSIVE";

export const QUICK_FILTERS = [
  { value: "", label: "All" },
  { value: "QUEUED,STARTING,RUNNING,RECOVERING,PAUSING,STOPPING,FINALIZING", label: "Active" },
  { value: ATTENTION, label: "Needs attention" },
  { value: "PAUSED", label: "Paused" },
  { value: "SUCCEEDED", label: "Succeeded" },
  { value: "STOPPED", label: "Stopped" },
  { value: "FAILED", label: "Failed" },
];

const REPEATED = ["tag", "metric"] as const;
const SINGLE = ["status", "condition", "kind", "name", "text", "author", "model", "dataset", "function", "parent", "sweep", "created_after", "created_before", "view", "sort"] as const;
/** Filters with a control of their own; the others are shown as chips. */
const WITH_CONTROL: ReadonlySet<string> = new Set(["status", "condition", "name", "sort"]);

/** The API query of a URL. Parameters that are no filters of the list are left out. */
export function listQuery(search: URLSearchParams): RunListQuery {
  const query: Record<string, string | string[]> = {};
  for (const name of SINGLE) {
    const value = search.get(name);
    if (value !== null && value !== "") query[name] = value;
  }
  for (const name of REPEATED) {
    const values = search.getAll(name).filter((value) => value !== "");
    if (values.length > 0) query[name] = values;
  }
  return query;
}

export type Chip = { name: string; value: string; label: string };

/** The filters without a control of their own, one chip per value. */
export function chips(search: URLSearchParams): Chip[] {
  return [...SINGLE, ...REPEATED]
    .filter((name) => !WITH_CONTROL.has(name))
    .flatMap((name) => search.getAll(name).filter((value) => value !== "").map((value) => ({ name, value, label: name === "tag" ? `#${value}` : `${name.replaceAll("_", " ")}: ${value}` })));
}

/** The URL without one value of a filter. */
export function without(search: URLSearchParams, name: string, value: string): URLSearchParams {
  const rest = new URLSearchParams();
  for (const [key, one] of search) if (key !== name || one !== value) rest.append(key, one);
  return rest;
}

/** The URL with a quick filter: a status or a condition, in the place of the one before. */
export function withQuickFilter(search: URLSearchParams, value: string): URLSearchParams {
  const changed = new URLSearchParams(search);
  changed.delete("status");
  changed.delete("condition");
  if (value !== "") changed.set(value === ATTENTION ? "condition" : "status", value);
  return changed;
}

/** Whether any filter is set, so that an empty list does not mean that there are no runs. */
export function isFiltered(search: URLSearchParams): boolean {
  return Object.keys(listQuery(search)).some((name) => name !== "sort");
}

/** The order after a click on a column's header: its first direction, then the other, then newest first. */
export function nextSort(current: string, key: string, descendingFirst: boolean): string {
  const [first, second] = descendingFirst ? [`-${key}`, key] : [key, `-${key}`];
  if (current === first) return second;
  return current === second ? "" : first;
}

export function sortDirection(current: string, key: string): "ascending" | "descending" | "none" {
  if (current === key) return "ascending";
  return current === `-${key}` ? "descending" : "none";
}
