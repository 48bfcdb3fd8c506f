import type { Json } from "../common/json.ts";

export type CopyKind = "cli" | "curl" | "sdk";

export type CopyValues = { spec: Json; yaml: string; origin: string; team: string; project: string };

/** What starts the run of this page from elsewhere, with the address and the names of the project. */
export function copyText(kind: CopyKind, values: CopyValues): string {
  return { cli, curl, sdk }[kind](values);
}

function environment({ origin, team, project }: CopyValues): string {
  return `export OOLONG_URL=${shellWord(origin)}\nexport OOLONG_TOKEN=…   # of ${oneLine(team)} / ${oneLine(project)}, from the page Tokens\n`;
}

function cli(values: CopyValues): string {
  const end = endMark(values.yaml);
  return `${environment(values)}oolong run create --file - <<'${end}'\n${withNewline(values.yaml)}${end}\n`;
}

function curl(values: CopyValues): string {
  const body = JSON.stringify({ spec: values.spec }, null, 2);
  const end = endMark(body);
  return `${environment(values)}curl --fail-with-body "$OOLONG_URL/api/v1/runs" \\
  --header "Authorization: Bearer $OOLONG_TOKEN" \\
  --header "Content-Type: application/json" \\
  --data-binary @- <<'${end}'\n${body}\n${end}\n`;
}

function sdk(values: CopyValues): string {
  return `# in the shell: export OOLONG_URL=${shellWord(values.origin)}
# and OOLONG_TOKEN: a token of ${oneLine(values.team)} / ${oneLine(values.project)}, from the page Tokens
from oolong.client import Client

spec = ${python(values.spec, "")}

with Client() as client:
    run = client.runs.create(spec)
    print(run.id)
`;
}

/** A JSON value as Python writes it, a key per line. */
export function python(value: unknown, indent: string): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const isList = Array.isArray(value);
  const lines = isList ? value.map((entry) => python(entry, inner)) : Object.entries(value).map(([name, entry]) => `${JSON.stringify(name)}: ${python(entry, inner)}`);
  const [open, close] = isList ? "[]" : "{}";
  return lines.length === 0 ? `${open}${close}` : `${open}\n${lines.map((line) => `${inner}${line},\n`).join("")}${indent}${close}`;
}

/** The word that ends a here-document, which no line of the text is. */
function endMark(text: string): string {
  const lines = new Set(text.split("\n"));
  let mark = "SPEC";
  while (lines.has(mark)) mark += "_";
  return mark;
}

function withNewline(text: string): string {
  return text.endsWith("\n") ? text : `${text}\n`;
}

function shellWord(text: string): string {
  return /^[\w:/.[\]-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A comment ends with its line, so a name in it must not have one. */
function oneLine(name: string): string {
  return name.replaceAll(/\s+/g, " ");
}
