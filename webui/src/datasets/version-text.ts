/** Words and numbers of a dataset's versions. */

import type { Difference, LengthBin, Version } from "../api/schema.d.ts";
import { grouped, percent } from "../common/format.ts";

/** Where a version comes from: a file, other splits of a version, or a merge. */
/** The columns that prompts, and answers or pairs, come from. */
export function columnsText({ prompt_column, answer_column, chosen_column, rejected_column }: Version["mapping"]): string {
  return [prompt_column, answer_column, chosen_column, rejected_column].filter((name) => name !== null && name !== undefined).join(", ");
}

export function originText(derived: Version["derived"]): string {
  if (derived === null) return "uploaded";
  if (Array.isArray(derived["merged"])) return `merged from ${derived["merged"].join(", ")}`;
  const ratios = Object.entries((derived["ratios"] ?? {}) as Record<string, number>).map(([name, ratio]) => `${name} ${ratio}`).join(", ");
  return `split of ${String(derived["from"])}: ${ratios}; seed ${String(derived["seed"])}`;
}

/** One line for a difference. */
export function diffText({ identical, added, removed, changed, unchanged }: Difference): string {
  if (identical) return "The versions have the same rows.";
  return `${grouped(added)} prompts added, ${grouped(removed)} removed, ${grouped(changed)} changed, ${grouped(unchanged)} unchanged.`;
}

/** Leaks as sentences, the largest first. Empty: no prompt is in two splits. */
export function leakTexts(leaks: Record<string, number>, splits: Version["splits"]): string[] {
  return Object.entries(leaks).sort(([, one], [, other]) => other - one).map(([names, prompts]) => {
    const smallest = Math.min(...names.split(", ").map((name) => splits[name] ?? Infinity));
    const share = Number.isFinite(smallest) && smallest > 0 ? `, ${percent(Math.min(1, prompts / smallest))} of the smallest of them` : "";
    return `${grouped(prompts)} prompt${prompts === 1 ? " is" : "s are"} in ${names.replaceAll(", ", " and ")}${share}`;
  });
}

export type RatioFields = { name: string; percent: number | string };

/** Ratios of new splits from percents, or what is wrong. */
export function ratiosOf(fields: RatioFields[]): { ratios: Record<string, number> } | { problem: string } {
  const named = fields.map(({ name, percent: share }) => ({ name: name.trim(), share: Number(share) }));
  if (named.some(({ name }) => name === "")) return { problem: "Name each split." };
  if (new Set(named.map(({ name }) => name)).size < named.length) return { problem: "Two splits have the same name." };
  if (named.some(({ share }) => !(share > 0))) return { problem: "Each split needs more than 0 %." };
  const total = named.reduce((sum, { share }) => sum + share, 0);
  if (Math.abs(total - 100) > 0.01) return { problem: `The splits add up to ${Math.round(total * 100) / 100} %, not 100 %.` };
  return { ratios: Object.fromEntries(named.map(({ name, share }) => [name, share / 100])) };
}

/** Bars of a histogram in percent of its highest bin. Empty bins stay, so that the axis is even. */
export function bars(histogram: readonly LengthBin[]): { from: number; to: number; rows: number; height: number }[] {
  const most = Math.max(1, ...histogram.map(({ rows }) => rows));
  return histogram.map(({ above, up_to, rows }) => ({ from: above + 1, to: up_to, rows, height: (100 * rows) / most }));
}

/** The versions to compare with: all but this one, the one before it first. */
export function comparable(versions: readonly Version[], version: Version): Version[] {
  const others = versions.filter(({ id }) => id !== version.id);
  return [...others.filter(({ number }) => number < version.number), ...others.filter(({ number }) => number > version.number)];
}

