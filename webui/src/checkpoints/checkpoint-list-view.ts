import type { paths } from "../api/schema.d.ts";

/** The view of the registry that the URL holds: filters as the API names them, and the cursor of the page. */

export type CheckpointListQuery = Omit<NonNullable<paths["/api/v1/checkpoints"]["get"]["parameters"]["query"]>, "limit">;

const FILTERS = ["run", "kind", "state", "alias", "final"] as const;
type Filter = (typeof FILTERS)[number];

const CHOICES: Partial<Record<Filter, readonly string[]>> = {
  kind: ["training", "weights"],
  state: ["LOCAL", "STORED", "DELETED"],
  final: ["true", "false"],
};

/** The API query of a URL. A value that is not one of a filter's choices is left out, so that an old link still opens. */
export function listQuery(search: URLSearchParams): CheckpointListQuery {
  const query: Record<string, string> = {};
  for (const name of [...FILTERS, "cursor"] as const) {
    const value = search.get(name);
    if (value === null || value === "") continue;
    if (name !== "cursor" && CHOICES[name]?.includes(value) === false) continue;
    query[name] = value;
  }
  return query;
}

/** The URL with another value of a filter, from the first page on. */
export function withFilter(search: URLSearchParams, name: Filter, value: string): URLSearchParams {
  const changed = new URLSearchParams(search);
  changed.delete("cursor");
  if (value === "") changed.delete(name);
  else changed.set(name, value);
  return changed;
}

/** The URL of another page of the same list. Without a cursor: the first one. */
export function withCursor(search: URLSearchParams, cursor: string | null): URLSearchParams {
  const changed = new URLSearchParams(search);
  if (cursor === null) changed.delete("cursor");
  else changed.set("cursor", cursor);
  return changed;
}

/** Whether any filter is set, so that an empty list does not mean that there are no checkpoints. */
export function isFiltered(search: URLSearchParams): boolean {
  return FILTERS.some((name) => listQuery(search)[name] !== undefined);
}
