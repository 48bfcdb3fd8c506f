import schema from "../api/run-spec.schema.json" with { type: "json" };

/** One key of the RunSpec, from the schema that the server validates with. */
export type SpecField = {
  path: string[];
  kind: "text" | "number" | "integer" | "boolean" | "choice" | "json";
  choices: string[];
  description: string;
  defaultValue: unknown;
};

type Node = {
  $ref?: string; type?: string; enum?: unknown[]; const?: unknown; anyOf?: Node[]; properties?: Record<string, Node>;
  description?: string; default?: unknown;
};

const definitions = schema.$defs as Record<string, Node>;

function resolve(node: Node): Node {
  if (node.$ref !== undefined) return resolve({ ...definitions[node.$ref.split("/").at(-1)!]!, ...withoutRef(node) });
  const choices = node.anyOf?.filter((choice) => choice.type !== "null") ?? [];
  if (choices.length === 1) return resolve({ ...choices[0]!, ...withoutAnyOf(node) });
  return node;
}

function withoutRef({ $ref: _, ...rest }: Node): Node {
  return rest;
}

function withoutAnyOf({ anyOf: _, ...rest }: Node): Node {
  return rest;
}

function kindOf(node: Node): SpecField["kind"] {
  if (node.enum !== undefined || node.const !== undefined) return "choice";
  if (node.type === "boolean" || node.type === "integer" || node.type === "number") return node.type;
  return node.type === "string" ? "text" : "json";
}

function fieldsBelow(node: Node, path: string[], defaults: unknown): SpecField[] {
  return Object.entries(node.properties ?? {}).flatMap(([name, child]) => {
    const resolved = resolve(child);
    const inherited = (defaults as Record<string, unknown> | undefined)?.[name];
    const own = inherited === undefined ? resolved.default : inherited;
    if (resolved.properties !== undefined) return fieldsBelow(resolved, [...path, name], own);
    return [{
      path: [...path, name],
      kind: kindOf(resolved),
      choices: (resolved.enum ?? (resolved.const === undefined ? [] : [resolved.const])).map(String),
      description: resolved.description ?? "",
      defaultValue: own,
    }];
  });
}

/** Every leaf of the RunSpec in declaration order. */
export const SPEC_FIELDS: SpecField[] = fieldsBelow(schema as Node, [], undefined);

function optionalBelow(node: Node, path: string[]): string[] {
  return Object.entries(node.properties ?? {}).flatMap(([name, child]) => {
    const resolved = resolve(child);
    if (resolved.properties === undefined) return [];
    const own = [...path, name];
    const isOptional = child.anyOf?.some((choice) => choice.type === "null") === true;
    return [...(isOptional ? [own.join("/")] : []), ...optionalBelow(resolved, own)];
  });
}

/** Sections that may be null, such as `algorithm/kl`. An empty one is not the same as none: it has its defaults. */
export const OPTIONAL_SECTIONS = new Set(optionalBelow(schema as Node, []));

export function pointerOf(path: readonly (string | number)[]): string {
  return path.map((part) => `/${part}`).join("");
}
