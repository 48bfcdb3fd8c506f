import { object, type Json } from "../common/json.ts";
import { sameValue } from "./spec-order.ts";

/** The JSON Merge Patch (RFC 7396) that makes `to` of `from`. A key that `to` lacks, or has as null, becomes null: its default. */
export function mergePatch(from: Json, to: Json): Json {
  const removed = Object.keys(from).filter((key) => from[key] !== null && (to[key] === undefined || to[key] === null)).map((key) => [key, null]);
  const written = Object.entries(to).flatMap(([key, value]) => {
    if (value === undefined || value === null || sameValue(value, from[key])) return [];
    const [before, after] = [object(from[key]), object(value)];
    return [[key, after !== null ? mergePatch(before ?? {}, after) : value]];
  });
  return Object.fromEntries([...removed, ...written]);
}

/** The spec with the values of a template in place of its own; null takes a value away (RFC 7396). */
export function withTemplate(spec: Json, template: Json): Json {
  const merged: Json = { ...spec };
  for (const [key, value] of Object.entries(template)) {
    const inner = object(value);
    if (value === null) delete merged[key];
    else merged[key] = inner === null ? value : withTemplate(object(merged[key]) ?? {}, inner);
  }
  return merged;
}
