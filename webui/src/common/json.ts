/** Safe access to JSON without a schema. Missing values and values of another type become null. */

export type Json = Record<string, unknown>;

export function object(value: unknown): Json | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : null;
}

export function at(value: unknown, ...path: string[]): unknown {
  return path.reduce<unknown>((inner, key) => object(inner)?.[key], value);
}

export function numberAt(value: unknown, ...path: string[]): number | null {
  const found = at(value, ...path);
  return typeof found === "number" && Number.isFinite(found) ? found : null;
}

export function textAt(value: unknown, ...path: string[]): string {
  const found = at(value, ...path);
  return typeof found === "string" ? found : "";
}

/** The nonzero counts of a {reason: count} object. */
export function counts(value: unknown): [string, number][] {
  return Object.entries(object(value) ?? {}).filter((entry): entry is [string, number] => typeof entry[1] === "number" && entry[1] !== 0);
}

export function sum(entries: [string, number][]): number {
  return entries.reduce((total, [, count]) => total + count, 0);
}
