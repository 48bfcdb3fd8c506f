import { isMap, parseDocument, stringify, type Document } from "yaml";

/** The text of the editor is the truth; the form reads it and writes single keys into it, comments stay. */
export type Parsed = { document: Document; spec: Record<string, unknown> } | { fault: string; line: number };

export function parseSpec(text: string): Parsed {
  const document = parseDocument(text, { strict: true, uniqueKeys: true });
  const [fault] = document.errors;
  if (fault !== undefined) return { fault: fault.message.split("\n")[0]!, line: fault.linePos?.[0].line ?? 1 };
  if (!isMap(document.contents)) return { fault: "The text is not a mapping of keys to values", line: 1 };
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

/** Writes one key, or takes it out when `value` is undefined; a section left empty goes with it. */
export function withValue(text: string, path: string[], value: unknown): string {
  const parsed = parseSpec(text);
  if ("fault" in parsed) return text;
  const { document } = parsed;
  if (value === undefined) {
    document.deleteIn(path);
    for (let depth = path.length - 1; depth > 0; depth -= 1) {
      const parent = document.getIn(path.slice(0, depth), true);
      if (isMap(parent) && parent.items.length === 0) document.deleteIn(path.slice(0, depth));
    }
  } else {
    // `evaluation: null` or a scalar in the way of a section gives place to the section.
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

/** The line of the text that a JSON pointer leads to, or its nearest parent's. */
export function lineOf(text: string, pointer: string): number | null {
  const parsed = parseSpec(text);
  if ("fault" in parsed) return parsed.line;
  const path = pointer.split("/").slice(1).map((part) => (/^\d+$/.test(part) ? Number(part) : part));
  for (let depth = path.length; depth > 0; depth -= 1) {
    const node = parsed.document.getIn(path.slice(0, depth), true) as { range?: [number, number, number] } | undefined;
    if (node?.range !== undefined) return text.slice(0, node.range[0]).split("\n").length;
  }
  return null;
}
