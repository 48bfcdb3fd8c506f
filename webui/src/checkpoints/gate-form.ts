import type { Gate } from "../api/schema.d.ts";
import { withoutDefaults } from "../start/spec-order.ts";
import type { Json } from "../common/json.ts";
import { asYaml, parseSpec } from "../start/spec-text.ts";

/** What a gate is made from, as text: the eval spec as YAML, and one assertion per line. */

/** The sections of an eval spec that a gate sets. The rest (kind, name, model) follows from the checkpoint. */
export const SECTIONS = ["dataset", "reward", "workflow", "evaluation", "rollout", "budget", "placement", "seed"];

export const EXAMPLE = `dataset: {version: my-dataset@1, split: eval}
reward: {name: exact_match}
evaluation: {prompts: 64, samples: 2}
`;
export const EXAMPLE_ASSERTIONS = "eval/accuracy_low >= 0.7\neval/prompts >= 64";

/** The part of a whole spec that belongs to a gate, without defaults, as YAML. */
export function gateText(spec: Json): string {
  const short = withoutDefaults(spec);
  return asYaml(Object.fromEntries(SECTIONS.filter((name) => short[name] !== undefined).map((name) => [name, short[name]])));
}

export const formOf = (gate: Gate | undefined) =>
  gate === undefined ? { spec: EXAMPLE, assertions: EXAMPLE_ASSERTIONS } : { spec: gateText(gate.spec as Json), assertions: gate.assertions.join("\n") };

export const assertionsOf = (text: string): string[] => text.split("\n").map((line) => line.trim()).filter((line) => line !== "");

export function readSpec(text: string): { spec: Json } | { fault: string } {
  const parsed = parseSpec(text);
  return "syntaxError" in parsed ? { fault: `Line ${parsed.syntaxError.line}: ${parsed.syntaxError.message}` } : { spec: parsed.spec };
}
