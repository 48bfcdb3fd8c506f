import { valueAt } from "../../start/spec-state.ts";
import { sameValue } from "../../start/spec-order.ts";
import { SPEC_FIELDS } from "../../start/spec-schema.ts";
import type { Json } from "../../common/json.ts";

export type Change = { path: string; value: string; byDefault: string };

/** The fields of a resolved spec that are not at their default, in the order of the reference. */
export function changesFromDefaults(spec: Json): Change[] {
  return SPEC_FIELDS.flatMap(({ path, defaultValue }) => {
    const value = valueAt(spec, path);
    const isEmpty = typeof value === "object" && value !== null && Object.keys(value).length === 0;
    if (value === undefined || value === null || (defaultValue === undefined && isEmpty) || sameValue(value, defaultValue)) return [];
    return [{ path: path.join("."), value: shown(value), byDefault: shown(defaultValue) }];
  });
}

function shown(value: unknown): string {
  if (value === undefined || value === null || value === "") return "none";
  return typeof value === "string" ? value : JSON.stringify(value);
}
