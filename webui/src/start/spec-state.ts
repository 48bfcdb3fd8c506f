import { object, type Json } from "../common/json.ts";

export type SyntaxProblem = { message: string; line: number };

/**
 * What the page edits. `text` is what the user wrote in the YAML view, or null as long as the text follows from the spec.
 * While the text has a syntax error, `spec` is the last one that could be read.
 */
export type SpecState = { spec: Json; text: string | null; syntaxError: SyntaxProblem | null };

export function stateOf(spec: Json): SpecState {
  return { spec, text: null, syntaxError: null };
}

export function valueAt(spec: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>((inner, key) => object(inner)?.[key], spec);
}

/** A copy of the spec with one key written, or removed if `value` is undefined. A section that becomes empty is removed too. */
export function withKey(spec: Json, path: readonly string[], value: unknown): Json {
  const [key, ...rest] = path;
  if (key === undefined) return spec;
  if (rest.length === 0) return value === undefined ? without(spec, key) : { ...spec, [key]: value };
  const section = object(spec[key]);
  if (section === null && value === undefined) return spec;
  const inner = withKey(section ?? {}, rest, value);
  return Object.keys(inner).length === 0 ? without(spec, key) : { ...spec, [key]: inner };
}

function without(spec: Json, key: string): Json {
  const { [key]: _, ...rest } = spec;
  return rest;
}
