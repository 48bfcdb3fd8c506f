/** What the form of a sweep sends, from what is typed. */

import type { SweepPlanRequest } from "../api/schema.d.ts";

export const MAX_TRIALS = 200;

export type ParameterFields = { pointer: string; by: "values" | "range"; values: string; low: number | string; high: number | string; scale: "linear" | "log"; integer: boolean };

export type PlanFields = {
  method: "grid" | "random";
  parameters: ParameterFields[];
  samples: number | string;
  seed: number | string;
  metric: string;
  goal: "max" | "min";
  atStep: number | string;
  worseThan: number | string;
  target: number | string;
};

export const NEW_PARAMETER: ParameterFields = { pointer: "", by: "values", values: "", low: "", high: "", scale: "log", integer: false };

/** Values as typed, separated by commas: `1e-6, 1e-5`, `true, false` or `dr_grpo, gspo`. Lists and objects are JSON. */
export function parseValues(text: string): unknown[] {
  const found: unknown[] = [];
  let depth = 0;
  let start = 0;
  for (let index = 0; index <= text.length; index += 1) {
    const character = text[index];
    if (character === "[" || character === "{") depth += 1;
    if (character === "]" || character === "}") depth -= 1;
    if (index < text.length && !(character === "," && depth === 0)) continue;
    const one = text.slice(start, index).trim();
    if (one !== "") found.push(parseValue(one));
    start = index + 1;
  }
  return found;
}

function parseValue(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    const numeric = Number(text); // also .5 and 1e-6, which JSON lacks or has
    return Number.isNaN(numeric) ? text : numeric;
  }
}

export type Problem = { parameter: number | null; field: string; message: string };

export type Planned = { plan: SweepPlanRequest; trials: number; first: Record<string, unknown> } | { problems: Problem[] };

/** The plan with its number of trials and its first point, or what is missing in which field. */
export function planOf(fields: PlanFields): Planned {
  const problems: Problem[] = [];
  const parameters = fields.parameters.map((parameter, index) => {
    const say = (field: string, message: string) => problems.push({ parameter: index, field, message });
    if (!/^(\/[a-z0-9_]+)+$/.test(parameter.pointer)) say("pointer", "Choose a field of the spec.");
    if (fields.parameters.findIndex(({ pointer }) => pointer === parameter.pointer) < index && parameter.pointer !== "") say("pointer", "This field varies already.");
    if (fields.method === "grid" || parameter.by === "values") {
      const values = parseValues(parameter.values);
      if (values.length === 0) say("values", "Write at least one value.");
      return { pointer: parameter.pointer, values, low: null, high: null, scale: "linear" as const, integer: false };
    }
    const [low, high] = [toNumber(parameter.low), toNumber(parameter.high)];
    if (low === null) say("low", "A number.");
    if (high === null) say("high", "A number.");
    if (low !== null && high !== null && low >= high) say("high", "Must be above the lowest.");
    if (low !== null && low <= 0 && parameter.scale === "log") say("low", "A log scale needs a value above 0.");
    return { pointer: parameter.pointer, values: null, low, high, scale: parameter.scale, integer: parameter.integer };
  });
  if (parameters.length === 0) problems.push({ parameter: null, field: "parameters", message: "Add at least one parameter." });
  const samples = toNumber(fields.samples);
  if (fields.method === "random" && (samples === null || samples < 1 || samples > MAX_TRIALS)) problems.push({ parameter: null, field: "samples", message: `1 to ${MAX_TRIALS}.` });
  const points = fields.method === "grid" ? parameters.reduce((product, { values }) => product * (values?.length ?? 0), 1) : (samples ?? 0);
  if (points > MAX_TRIALS) problems.push({ parameter: null, field: "parameters", message: `The grid has ${points} points, a sweep at most ${MAX_TRIALS}. Remove values, or take random points.` });
  if (fields.metric.trim() === "") problems.push({ parameter: null, field: "metric", message: "Name a metric, such as reward/mean." });
  const [atStep, worseThan, target] = [toNumber(fields.atStep), toNumber(fields.worseThan), toNumber(fields.target)];
  if ((atStep === null) !== (worseThan === null)) problems.push({ parameter: null, field: atStep === null ? "atStep" : "worseThan", message: "Give both, or neither." });
  if (problems.length > 0) return { problems };
  return {
    trials: points,
    first: Object.fromEntries(parameters.map(({ pointer, values, low }) => [pointer, values?.[0] ?? low])),
    plan: {
      method: fields.method, parameters, samples: fields.method === "random" ? samples : null, seed: toNumber(fields.seed) ?? 1,
      objective: { metric: fields.metric.trim(), goal: fields.goal }, stop: atStep === null && target === null ? null : { at_step: atStep, worse_than: worseThan, target },
    },
  };
}

function toNumber(value: number | string): number | null {
  if (typeof value === "string" && value.trim() === "") return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}

/** A copy of the spec with a point's values set; sections that are missing are made. */
export function atPoint(spec: Record<string, unknown>, point: Record<string, unknown>): Record<string, unknown> {
  const copy = structuredClone(spec);
  for (const [pointer, value] of Object.entries(point)) {
    const path = pointer.slice(1).split("/");
    let section = copy;
    for (const name of path.slice(0, -1)) {
      if (typeof section[name] !== "object" || section[name] === null || Array.isArray(section[name])) section[name] = {};
      section = section[name] as Record<string, unknown>;
    }
    section[path.at(-1)!] = value;
  }
  return copy;
}

/** What a sweep takes, before it starts. `seconds`: of earlier runs of this shape. */
export function costText(trials: number, parallel: number, slots: number | null, seconds: number | null): string {
  const together = Math.min(trials, parallel);
  const slotText = slots === null ? "" : `, with ${slots} slot${slots === 1 ? "" : "s"} each: at most ${together * slots} slot${together * slots === 1 ? "" : "s"} at the same time`;
  const time = seconds === null ? "" : ` From earlier runs of this shape: about ${hours(Math.ceil(trials / together) * seconds)}.`;
  return `${trials} trial${trials === 1 ? "" : "s"}, ${together} at a time${slotText}.${time}`;
}

function hours(seconds: number): string {
  return seconds < 5400 ? `${Math.max(1, Math.round(seconds / 60))} min` : `${(seconds / 3600).toFixed(1)} h`;
}
