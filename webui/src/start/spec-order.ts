import { object, type Json } from "../common/json.ts";
import { OPTIONAL_SECTIONS, SPEC_FIELDS } from "./spec-schema.ts";

/** The keys of a section in the order of the RunSpec reference. The database keeps none. */
const ORDER = new Map<string, string[]>();
for (const { path } of SPEC_FIELDS) {
  path.forEach((key, depth) => {
    const section = path.slice(0, depth).join("/");
    const keys = ORDER.get(section) ?? [];
    if (!keys.includes(key)) ORDER.set(section, [...keys, key]);
  });
}

/** The spec with its keys in the order of the reference, and unknown ones after them. */
export function inOrder(spec: Json, section = ""): Json {
  const known = ORDER.get(section) ?? [];
  const rank = (key: string) => (known.includes(key) ? known.indexOf(key) : known.length);
  const keys = Object.keys(spec).sort((one, two) => rank(one) - rank(two));
  return Object.fromEntries(keys.map((key) => {
    const inner = object(spec[key]);
    const path = section === "" ? key : `${section}/${key}`;
    return [key, inner === null || !ORDER.has(path) ? spec[key] : inOrder(inner, path)];
  }));
}

/** The keys of a resolved spec that are not at their default, for a run whose submitted spec is not known. */
export function withoutDefaults(spec: Json): Json {
  const defaults = new Map(SPEC_FIELDS.map(({ path, defaultValue }) => [path.join("/"), defaultValue]));
  const prune = (value: Json, section: string): Json =>
    Object.fromEntries(Object.entries(value).flatMap(([key, entry]) => {
      const path = section === "" ? key : `${section}/${key}`;
      const inner = ORDER.has(path) ? object(entry) : null;
      if (inner !== null) {
        const pruned = prune(inner, path);
        return Object.keys(pruned).length === 0 && !OPTIONAL_SECTIONS.has(path) ? [] : [[key, pruned]];
      }
      return path !== "kind" && isDefault(entry, defaults.get(path)) ? [] : [[key, entry]];
    }));
  return inOrder(prune(spec, ""));
}

/** The schema names no default where it is an empty list or object. */
function isDefault(value: unknown, byDefault: unknown): boolean {
  return sameValue(value, byDefault ?? null) || (byDefault === undefined && typeof value === "object" && value !== null && Object.keys(value).length === 0);
}

/** Whether two JSON values are equal, whatever the order of their keys. */
export function sameValue(one: unknown, two: unknown): boolean {
  if (Array.isArray(one) && Array.isArray(two)) return one.length === two.length && one.every((entry, index) => sameValue(entry, two[index]));
  const [first, second] = [object(one), object(two)];
  if (first === null || second === null) return one === two;
  const keys = Object.keys(first);
  return keys.length === Object.keys(second).length && keys.every((key) => key in second && sameValue(first[key], second[key]));
}
