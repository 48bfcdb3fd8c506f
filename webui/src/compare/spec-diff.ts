import type { Run } from "../api/schema.d.ts";
import { DASH, grouped, words } from "../common/format.ts";
import { numberAt, object } from "../common/json.ts";

export type DiffRow = { path: string; section: string; field: string; cells: string[] };

export type ComparedSpec = Pick<Run, "kind" | "spec" | "dataset" | "model" | "live">;

/** Fields that name a run and do not change what it does. */
const LABELS = new Set(["name", "notes"]);
const TOP_LEVEL = "run";
const OVERRIDES = "runtime overrides";

/** The fields in which the resolved specs differ, in the order of the specs, with one cell for each run. */
export function specDiff(runs: readonly ComparedSpec[]): DiffRow[] {
  const flat = runs.map((run) => new Map([...leaves(run), ...overrides(run)]));
  const paths = [...new Set(flat.flatMap((one) => [...one.keys()]))];
  return paths
    .map((path) => ({ path, cells: flat.map((one) => readable(one.get(path))) }))
    .filter(({ path, cells }) => !LABELS.has(path) && cells.some((cell) => cell !== cells[0]))
    .map(({ path, cells }) => ({ path, ...splitPath(path), cells }))
    .sort((a, b) => order(paths, a.section) - order(paths, b.section));
}

function leaves(run: ComparedSpec): Map<string, unknown> {
  const found = new Map<string, unknown>();
  const walk = (path: string, value: unknown) => {
    const nested = object(value);
    if (nested === null || Object.keys(nested).length === 0) found.set(path, value);
    else for (const [key, inner] of Object.entries(nested)) walk(path === "" ? key : `${path}.${key}`, inner);
  };
  walk("", run.spec);
  // An id says less than the name that it stands for.
  if (found.has("dataset.version")) found.set("dataset.version", run.dataset.ref);
  for (const path of ["model.base_model", "model.checkpoint"]) if (typeof found.get(path) === "string" && found.get(path) !== "") found.set(path, run.model.name);
  return found;
}

function overrides({ live }: ComparedSpec): [string, unknown][] {
  return Object.entries(live).filter(([, value]) => value !== null).map(([name, value]) => [`${OVERRIDES}.${name}`, value]);
}

function splitPath(path: string): { section: string; field: string } {
  const [first, ...rest] = path.split(".");
  return rest.length === 0 ? { section: words(TOP_LEVEL), field: first! } : { section: words(first!), field: rest.join(".") };
}

function order(paths: string[], section: string): number {
  if (section === words(TOP_LEVEL)) return -1;
  return paths.findIndex((path) => words(path.split(".")[0]!) === section);
}

function readable(value: unknown): string {
  if (value === undefined) return DASH;
  if (value === null) return "none";
  if (typeof value === "number") return readableNumber(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value) && value.every((one) => typeof one !== "object" || one === null)) return value.length === 0 ? "none" : value.map(readable).join(", ");
  if (typeof value === "object") return JSON.stringify(value);
  return value === "" ? "none" : String(value);
}

function readableNumber(value: number): string {
  if (Number.isInteger(value)) return Math.abs(value) >= 10_000 ? grouped(value) : String(value);
  return Math.abs(value) < 1e-3 ? value.toExponential() : String(value);
}

/** The max staleness that a run works with now. Null for kinds without one. */
export function maxStaleness({ kind, spec, live }: ComparedSpec): number | null {
  return kind === "rl" ? (live.max_staleness ?? numberAt(spec, "staleness", "max")) : null;
}

/** "synchronous" without staleness: the trainer and the engines wait for each other. */
export function modeOf(run: ComparedSpec): { label: string; isSync: boolean } | null {
  const bound = maxStaleness(run);
  if (bound === null) return null;
  return bound === 0 ? { label: "Synchronous, η = 0", isSync: true } : { label: `Asynchronous, η = ${bound}`, isSync: false };
}

/** One sentence about how the specs differ. */
export function diffSentence(runs: readonly (ComparedSpec & { name: string })[], rows: readonly DiffRow[]): string {
  if (runs.length < 2) return "";
  if (rows.length === 0) return "The resolved specs are the same.";
  if (rows.every(({ path }) => path === "staleness.max" || path === `${OVERRIDES}.max_staleness`)) {
    const sync = runs.filter((run) => modeOf(run)?.isSync === true).map(({ name }) => `“${name}”`);
    const async = runs.filter((run) => modeOf(run)?.isSync === false).map(({ name }) => `“${name}”`);
    if (sync.length > 0 && async.length > 0) return `The same spec, synchronous in ${sync.join(", ")} and asynchronous in ${async.join(", ")}: only max staleness η differs.`;
    return "The same spec with another max staleness η.";
  }
  const shown = rows.slice(0, 4).map(({ path }) => path).join(", ");
  return `The resolved specs differ in ${rows.length} ${rows.length === 1 ? "field" : "fields"}: ${shown}${rows.length > 4 ? " and others" : ""}.`;
}
