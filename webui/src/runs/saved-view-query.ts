import type { RunView } from "../api/schema.d.ts";
import { listQuery } from "./run-list-view.ts";

/** The filters and the order of the address, as the API keeps them. */
export function viewQuery(search: URLSearchParams): Record<string, string[]> {
  return Object.fromEntries(Object.entries(listQuery(search)).map(([name, value]) => [name, [value].flat().map(String)]));
}

export function searchOf(view: Pick<RunView, "query">): URLSearchParams {
  return new URLSearchParams(Object.entries(view.query).flatMap(([name, values]) => values.map((value): [string, string] => [name, value])));
}

/** Whether the address shows exactly this view. */
export function isSameView(search: URLSearchParams, view: Pick<RunView, "query">): boolean {
  const text = (query: Record<string, string[]>) => JSON.stringify(Object.entries(query).map(([name, values]) => [name, [...values].sort()]).sort());
  return Object.keys(view.query).length > 0 && text(viewQuery(search)) === text(view.query);
}
