import { isMap, parseDocument, stringify, type Document } from "yaml";

/** The text of the editor is the source of truth. The form reads it and writes single keys into it, and comments stay. */
export type Parsed = { document: Document; spec: Record<string, unknown> } | { syntaxError: SyntaxProblem };

export type SyntaxProblem = { message: string; line: number };

export function parseSpec(text: string): Parsed {
  const document = parseDocument(text, { strict: true, uniqueKeys: true });
  const [error] = document.errors;
  if (error !== undefined) return { syntaxError: { message: error.message.split("\n")[0]!, line: error.linePos?.[0].line ?? 1 } };
  if (!isMap(document.contents)) return { syntaxError: { message: "The text is not a mapping of keys to values", line: 1 } };
  return { document, spec: document.toJS() as Record<string, unknown> };
}

export function isJson(text: string): boolean {
  return text.trimStart().startsWith("{");
}

export function asYaml(spec: unknown): string {
  return stringify(spec, { lineWidth: 110 });
}

export function asJson(spec: unknown): string {
  return JSON.stringify(spec, null, 2);
}

/** Write one key, or remove it if `value` is undefined. A section that becomes empty is removed too. */
export function withValue(text: string, path: string[], value: unknown): string {
  const parsed = parseSpec(text);
  if ("syntaxError" in parsed) return text;
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
  return isJson(text) ? asJson(document.toJS()) : document.toString({ lineWidth: 110 });
}

export function valueAt(spec: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>((inner, key) => (typeof inner === "object" && inner !== null ? (inner as Record<string, unknown>)[key] : undefined), spec);
}

/** The line of a JSON pointer in the text, or of its nearest existing parent. */
export function lineOf(text: string, pointer: string): number | null {
  const parsed = parseSpec(text);
  if ("syntaxError" in parsed) return parsed.syntaxError.line;
  const path = pointer.split("/").slice(1).map((part) => (/^\d+$/.test(part) ? Number(part) : part));
  for (let depth = path.length; depth > 0; depth -= 1) {
    const node = parsed.document.getIn(path.slice(0, depth), true) as { range?: [number, number, number] } | undefined;
    if (node?.range !== undefined) return text.slice(0, node.range[0]).split("\n").length;
  }
  return null;
}
