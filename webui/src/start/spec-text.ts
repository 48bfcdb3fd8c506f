import { isMap, parseDocument, stringify, type Document } from "yaml";

import type { Json } from "../common/json.ts";
import { withKey, type SpecState, type SyntaxProblem } from "./spec-state.ts";

/** Reads and writes YAML. It loads when the YAML view or a copy first needs it. */

export type Parsed = { document: Document; spec: Json } | { syntaxError: SyntaxProblem };

export function parseSpec(text: string): Parsed {
  const document = parseDocument(text, { strict: true, uniqueKeys: true });
  const [error] = document.errors;
  if (error !== undefined) return { syntaxError: { message: error.message.split("\n")[0]!, line: error.linePos?.[0].line ?? 1 } };
  if (!isMap(document.contents)) return { syntaxError: { message: "The text is not a mapping of keys to values", line: 1 } };
  return { document, spec: document.toJS() as Json };
}

export function isJson(text: string): boolean {
  return text.trimStart().startsWith("{");
}

export function asYaml(spec: unknown): string {
  return stringify(spec, { lineWidth: 110 });
}

/** The state after the user changed the text. A syntax error keeps the spec that could be read before. */
export function readText(old: SpecState, text: string): SpecState {
  const parsed = parseSpec(text);
  return "spec" in parsed ? { spec: parsed.spec, text, syntaxError: null } : { spec: old.spec, text, syntaxError: parsed.syntaxError };
}

/** Write one key into the text, or remove it if `value` is undefined. Comments and the order of the other keys stay. */
export function withValue(text: string, path: string[], value: unknown): string {
  const parsed = parseSpec(text);
  if ("syntaxError" in parsed) return text;
  if (isJson(text)) return JSON.stringify(withKey(parsed.spec, path, value), null, 2);
  const { document } = parsed;
  if (value === undefined) {
    document.deleteIn(path);
    for (let depth = path.length - 1; depth > 0; depth -= 1) {
      const parent = document.getIn(path.slice(0, depth), true);
      if (isMap(parent) && parent.items.length === 0) document.deleteIn(path.slice(0, depth));
    }
  } else {
    // Replace a null or a scalar on the path, such as `evaluation: null`, with a section.
    for (let depth = 1; depth < path.length; depth += 1) {
      const prefix = path.slice(0, depth);
      if (document.hasIn(prefix) && !isMap(document.getIn(prefix, true))) document.setIn(prefix, document.createNode({}));
    }
    document.setIn(path, value);
  }
  return document.toString({ lineWidth: 110 });
}

/** The line of a JSON pointer in the text, or of its nearest existing parent. */
export function lineOf(text: string, pointer: string): number | null {
  const parsed = parseSpec(text);
  if ("syntaxError" in parsed) return parsed.syntaxError.line;
  const path = pointer.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~")).map((part) => (/^\d+$/.test(part) ? Number(part) : part));
  for (let depth = path.length; depth > 0; depth -= 1) {
    const key = keyAt(parsed.document, path.slice(0, depth));
    if (key !== null) return text.slice(0, key).split("\n").length;
  }
  return null;
}

type Ranged = { range?: [number, number, number] | null };

/** The position of the key that a path ends with, or of the entry of a list. */
function keyAt(document: Document, path: (string | number)[]): number | null {
  const parent = document.getIn(path.slice(0, -1), true);
  const last = path.at(-1)!;
  const node = isMap(parent) ? (parent.items.find((item) => String((item.key as { value?: unknown } | null)?.value) === String(last))?.key as Ranged | undefined) : (document.getIn(path, true) as Ranged | undefined);
  return node?.range?.[0] ?? null;
}
