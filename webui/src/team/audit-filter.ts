import type { AuditFilter } from "../api/team-queries.ts";

const NAMES = ["actor", "action", "target"] as const;
const HOUR = 3_600_000;

/** Choices of the period; the URL holds the key. */
export const PERIODS: Record<string, { label: string; milliseconds: number }> = {
  "1h": { label: "Last hour", milliseconds: HOUR },
  "24h": { label: "Last 24 hours", milliseconds: 24 * HOUR },
  "7d": { label: "Last 7 days", milliseconds: 7 * 24 * HOUR },
  "30d": { label: "Last 30 days", milliseconds: 30 * 24 * HOUR },
};
export const CUSTOM = "custom";

/** Areas of actions, for the filter's suggestions. Any other action can be typed too. */
export const ACTIONS = ["run.*", "checkpoint.*", "token.*", "project.*", "team.*", "invitation.*", "service_account.*", "secret.*", "webhook.*", "pool.*", "node.*", "login", "login.failed"];

/** A date and time as an input has it ("2026-01-31T12:00", in the browser's zone), as the API takes it. Undefined: not a time. */
export function inputToIso(value: string | null): string | undefined {
  if (value === null || value === "") return undefined;
  const at = new Date(value);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

/** The API's filter of a URL. A period counts back from `now`, to the minute, so that the same filter is the same query. */
export function auditFilter(search: URLSearchParams, now: number): AuditFilter {
  const filter: AuditFilter = {};
  for (const name of NAMES) {
    const value = search.get(name)?.trim();
    if (value !== undefined && value !== "") filter[name] = value;
  }
  const period = PERIODS[search.get("period") ?? ""];
  if (period !== undefined) filter.since = new Date(Math.floor(now / 60_000) * 60_000 - period.milliseconds).toISOString();
  else {
    const since = inputToIso(search.get("since")), until = inputToIso(search.get("until"));
    if (since !== undefined) filter.since = since;
    if (until !== undefined) filter.until = until;
  }
  return filter;
}

/** The URL's search with a filter set, or taken away when the value is empty. */
export function withFilter(search: URLSearchParams, name: string, value: string | null): URLSearchParams {
  const changed = new URLSearchParams(search);
  if (value === null || value === "") changed.delete(name);
  else changed.set(name, value);
  if (name === "period") for (const custom of ["since", "until"]) changed.delete(custom);
  return changed;
}

export const isFiltered = (filter: AuditFilter): boolean => Object.keys(filter).length > 0;
