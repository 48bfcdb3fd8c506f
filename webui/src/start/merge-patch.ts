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

/** Fields of a section that exclude each other. */
const EXCLUSIVE: Record<string, [string, string]> = { model: ["base_model", "checkpoint"], reward: ["name", "function"], workflow: ["name", "function"] };

/** The spec with the values of a template in place of its own, and without those that they exclude. */
export function withTemplate(spec: Json, template: Json): Json {
  const kept: Json = { ...spec };
  for (const [section, pair] of Object.entries(EXCLUSIVE)) {
    const [own, given] = [object(kept[section]), object(template[section])];
    const named = pair.find((field) => (given?.[field] ?? null) !== null);
    if (own === null || named === undefined || (own[named] ?? null) !== null) continue;
    // Options belong to the name or function that they replace.
    kept[section] = Object.fromEntries(Object.entries(own).filter(([field]) => !pair.includes(field) && (section === "model" || field !== "options")));
  }
  return merged(kept, template);
}

/** RFC 7396: null takes a value away. */
function merged(spec: Json, patch: Json): Json {
  const result: Json = { ...spec };
  for (const [key, value] of Object.entries(patch)) {
    const inner = object(value);
    if (value === null) delete result[key];
    else result[key] = inner === null ? value : merged(object(result[key]) ?? {}, inner);
  }
  return result;
}
