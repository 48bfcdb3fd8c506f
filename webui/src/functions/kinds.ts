import type { FunctionVersion, SourceKind } from "../api/schema.d.ts";
import type { FieldProblem } from "../api/problem.ts";

type Kind = {
  label: string;
  plural: string;
  entry: string; // the function that a file of this kind defines
  parameters: readonly string[];
  isAsync: boolean;
  returns: string;
  runsIn: string;
  help: string; // its page of the documentation
};

export const KINDS: Record<SourceKind, Kind> = {
  reward: {
    label: "Reward", plural: "Rewards", entry: "score", parameters: ["prompt", "completion", "answer"], isAsync: false,
    returns: 'a finite number, or {"score": number, "parts": {name: number}}',
    runsIn: "The node's sandbox: standard library only, no network, no files, one call per completion.", help: "how-to/reward",
  },
  workflow: {
    label: "Workflow", plural: "Workflows", entry: "run", parameters: ["episode"], isAsync: true,
    returns: "what the rollout is worth, a finite number",
    runsIn: "The node's sandbox: standard library and oolong.workflow, no network, one process per group.", help: "how-to/workflow",
  },
  loss: {
    label: "Loss", plural: "Losses", entry: "loss", parameters: ["inputs", "settings"], isAsync: false,
    returns: "LossOutputs, one number per token",
    runsIn: "The trainer, with its rights. An admin of the installation allows losses per pool.", help: "how-to/algorithm",
  },
};

export const KIND_NAMES = Object.keys(KINDS) as SourceKind[];

export function isKind(text: string | null): text is SourceKind {
  return text !== null && Object.hasOwn(KINDS, text);
}

/** The function that a version defines, with its options: `score(prompt, completion, answer, half_at=…)`. */
export function signature({ kind, options, any_option }: Pick<FunctionVersion, "kind" | "options" | "any_option">): string {
  const { entry, parameters } = KINDS[kind];
  return `${entry}(${[...parameters, ...options.map((name) => `${name}=…`), ...(any_option ? ["**options"] : [])].join(", ")})`;
}

/** The lines of a RunSpec that use a version. Options with defaults are a comment, because only the source knows the values. */
export function specLines({ kind, ref, options }: Pick<FunctionVersion, "kind" | "ref" | "options">): string {
  const section = kind === "loss" ? "algorithm" : kind;
  const field = kind === "loss" ? "loss_function" : "function";
  const lines = [`${section}:`, `  ${field}: ${ref}`];
  if (options.length > 0) lines.push(`  # options: {${options.map((name) => `${name}: …`).join(", ")}}`);
  return `${lines.join("\n")}\n`;
}

export type SourceError = { line: number | null; message: string };

/** Errors of an upload, each with the line of the file that its message names. */
export function sourceErrors(problems: readonly FieldProblem[]): SourceError[] {
  return problems
    .filter(({ pointer }) => pointer === "/source")
    .map(({ message }) => {
      const found = /^line (\d+): ([\s\S]*)$/.exec(message);
      return found === null ? { line: null, message } : { line: Number(found[1]), message: found[2]! };
    });
}

/** The name of a function for a file: `My reward.py` becomes `My-reward`. */
export function nameOfFile(filename: string): string {
  return filename.replace(/\.py$/i, "").replaceAll(/[^A-Za-z0-9_.-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "");
}

/** Where a function is used, in words. */
export function usesText(runs: number, more: boolean): string {
  if (runs === 0) return "No run uses it yet.";
  return `${runs}${more ? " or more" : ""} run${runs === 1 && !more ? " uses" : "s use"} it.`;
}
