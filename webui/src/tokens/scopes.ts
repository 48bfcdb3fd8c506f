/** A row of the scope picker: an area, and what a token may be given in it. */
export type ScopeRow = { area: string; actions: string[] };

export const ALL_SCOPES = "*";

/** The scopes of the caller by area, in the order of the API's names. */
export function scopeRows(scopes: readonly string[]): ScopeRow[] {
  const rows = new Map<string, string[]>();
  for (const scope of scopes) {
    const [area = "", action = ""] = scope.split(":");
    rows.set(area, [...(rows.get(area) ?? []), action]);
  }
  const order = ["read", "write", "admin"];
  return [...rows].map(([area, actions]) => ({ area, actions: actions.sort((one, other) => order.indexOf(one) - order.indexOf(other)) })).sort((one, other) => one.area.localeCompare(other.area));
}

export const readScopes = (scopes: readonly string[]): string[] => scopes.filter((scope) => scope.endsWith(":read"));

/** What a token's scopes are called in a table: their names, or that they are all of its role. */
export function scopesText(scopes: readonly string[]): string {
  return scopes.includes(ALL_SCOPES) ? "all that the role allows" : scopes.join(", ");
}
