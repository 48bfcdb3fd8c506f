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
