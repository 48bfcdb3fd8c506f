import type { RunView } from "../api/schema.d.ts";
import { listQuery } from "./run-list-view.ts";

/** The filters and the order of the address, as the API keeps them. The columns are apart, in `columns`. */
export function viewQuery(search: URLSearchParams): Record<string, string[]> {
  return Object.fromEntries(Object.entries(listQuery(search)).map(([name, value]) => [name, [value].flat().map(String)]));
}

export function searchOf(view: Pick<RunView, "query" | "columns">): URLSearchParams {
  const search = new URLSearchParams(Object.entries(view.query).flatMap(([name, values]) => values.map((value): [string, string] => [name, value])));
  if (view.columns !== null) search.set("columns", view.columns.join());
  return search;
}

/** Whether the address shows exactly this view. A view without columns fits any. */
export function isSameView(search: URLSearchParams, view: Pick<RunView, "query" | "columns">): boolean {
  const text = (query: Record<string, string[]>) => JSON.stringify(Object.entries(query).map(([name, values]) => [name, [...values].sort()]).sort());
  if (view.columns === null ? Object.keys(view.query).length === 0 : view.columns.join() !== search.get("columns")) return false;
  return text(viewQuery(search)) === text(view.query);
}
