/** What the form of a reward test sends, from what is typed. */

import type { RewardTestRequestRequest } from "../api/schema.d.ts";
import { object, type Json } from "../common/json.ts";
import { PROBE_NAMES, type ProbeName } from "./report.ts";

export type Completions = "sample" | "stored" | "probes";

export const BUILT_IN = ["exact_match", "math", "code", "format", "length", "composite", "http", "judge"];

/** Rows of a complete test (RewardTestSection.rows). */
export const DEFAULT_ROWS = 32;

export type Fields = {
  reward: string; // a built-in name, or name@3
  options: string; // JSON
  dataset: string;
  split: string;
  weights: string; // "model:ID" or "checkpoint:ID"
  rows: number | string;
  completions: Completions;
  samples: number | string;
  maxNewTokens: number | string;
  stored: string; // JSON lines
  probes: ProbeName[];
  successScore: number | string;
};

export type Problems = Partial<Record<keyof Fields, string>>;

/** The request, or what is wrong with each field. */
export function testRequest(fields: Fields): { body: RewardTestRequestRequest } | { problems: Problems } {
  const problems: Problems = {};
  if (fields.reward === "") problems.reward = "Choose a reward.";
  if (fields.dataset === "") problems.dataset = "Choose a dataset version.";
  if (fields.weights === "") problems.weights = "Choose the model whose chat template renders the prompts.";
  if (!(Number(fields.rows) >= 1)) problems.rows = "At least 1 row.";
  if (fields.completions === "sample" && !(Number(fields.samples) >= 1)) problems.samples = "At least 1 sample per row.";
  const options = parseOptions(fields.options);
  if (options === null) problems.options = 'A JSON object, such as {"extract": "whole"}.';
  const stored = fields.completions === "stored" ? parseStored(fields.stored) : [];
  if (typeof stored === "string") problems.stored = stored;
  if (Object.keys(problems).length > 0 || options === null || typeof stored === "string") return { problems };
  const [source, id] = [fields.weights.slice(0, fields.weights.indexOf(":")), fields.weights.slice(fields.weights.indexOf(":") + 1)];
  const isSampled = fields.completions === "sample";
  return {
    body: {
      dataset: fields.dataset, split: fields.split,
      reward: { ...(fields.reward.includes("@") ? { function: fields.reward } : { name: fields.reward }), options } as RewardTestRequestRequest["reward"],
      ...(source === "checkpoint" ? { checkpoint: id } : { model: id }),
      reward_test: {
        rows: Number(fields.rows), samples: isSampled ? Number(fields.samples) : 0, probes: fields.probes,
        ...(isSampled && fields.maxNewTokens !== "" ? { max_new_tokens: Number(fields.maxNewTokens) } : {}),
        ...(fields.successScore === "" ? {} : { success_score: Number(fields.successScore) }),
      } as NonNullable<RewardTestRequestRequest["reward_test"]>,
      stored: stored as NonNullable<RewardTestRequestRequest["stored"]>,
    },
  };
}

function parseOptions(text: string): Json | null {
  if (text.trim() === "") return {};
  try {
    return object(JSON.parse(text));
  } catch {
    return null; // Not JSON: the field says so.
  }
}

/** Completions from JSON lines, or the first problem with its line. */
export function parseStored(text: string): Json[] | string {
  const found: Json[] = [];
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    let sample: Json | null = null;
    try {
      sample = object(JSON.parse(line));
    } catch {
      sample = null; // The message below names the line.
    }
    if (sample === null) return `Line ${index + 1} is not a JSON object.`;
    if (typeof sample["completion"] !== "string") return `Line ${index + 1} has no completion.`;
    if (sample["row"] === undefined && (sample["prompt"] === undefined || sample["answer"] === undefined)) return `Line ${index + 1} needs a row, or a prompt and an answer.`;
    found.push(sample);
  }
  return found.length === 0 ? "Paste or load at least one completion." : found;
}

/** What a test does, before it starts. */
export function planText(fields: Fields, rowsInSplit: number | null): string {
  const rows = Math.min(Number(fields.rows) || 0, rowsInSplit ?? Infinity);
  const stored = fields.completions === "stored" ? parseStored(fields.stored) : [];
  const extra = fields.completions === "sample" ? rows * (Number(fields.samples) || 0) : typeof stored === "string" ? 0 : stored.length;
  const completions = rows * fields.probes.length + extra;
  const slot = fields.completions === "sample" ? "It takes one free slot of the pool to sample" : "It needs a node, and no slot";
  return `Scores ${completions} completions twice each: ${rows} rows × ${fields.probes.length} probes${extra > 0 ? ` and ${extra} ${fields.completions === "sample" ? "samples" : "stored completions"}` : ""}. ${slot}, and waits behind every run.`;
}

/** Whether the result can count where a project accepts only tested rewards. */
export function completeNote(fields: Fields, rowsInSplit: number | null): string {
  const needed = Math.min(DEFAULT_ROWS, rowsInSplit ?? DEFAULT_ROWS);
  const lacks = [...(fields.probes.length < PROBE_NAMES.length ? ["all probes"] : []), ...(Number(fields.rows) < needed ? [`${needed} rows`] : [])];
  return lacks.length === 0 ? "" : `Not a complete test: it needs ${lacks.join(" and ")}. Projects that accept only tested rewards ignore its result.`;
}
