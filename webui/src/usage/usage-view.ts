import type { UsageRow, UsageSeriesRow } from "../api/schema.d.ts";

/** What the page shows, from its address, and figures made of the API's answers. */

export const PERIODS = [
  { value: "1", label: "Last 24 hours" },
  { value: "7", label: "Last 7 days" },
  { value: "30", label: "Last 30 days" },
  { value: "90", label: "Last 90 days" },
  { value: "365", label: "Last year" },
] as const;
export const STACKS = ["outcome", "phase", "team", "project"] as const;
export const ROWS = ["project", "team", "run"] as const;
export const DEVICES = ["", "cuda", "cpu"] as const;
export const MEASURES = ["time", "cost"] as const;

export type UsageView = { measure: (typeof MEASURES)[number]; days: number; stack: (typeof STACKS)[number]; by: (typeof ROWS)[number]; device: (typeof DEVICES)[number] };

const HOUR = 3_600_000;
const LONGEST_BY_HOUR = 7; // days; a longer period has a bar per day

export function usageView(search: URLSearchParams): UsageView {
  return {
    measure: choice(search.get("measure"), MEASURES, "time"),
    days: Number(choice(search.get("days"), PERIODS.map(({ value }) => value), "30")),
    stack: choice(search.get("stack"), STACKS, "outcome"),
    by: choice(search.get("by"), ROWS, "project"),
    device: choice(search.get("device"), DEVICES, ""),
  };
}

function choice<T extends string>(value: string | null, known: readonly T[], otherwise: T): T {
  return known.find((one) => one === value) ?? otherwise;
}

export const bucketOf = (view: UsageView) => (view.days <= LONGEST_BY_HOUR ? ("hour" as const) : ("day" as const));

/** The start of the period, at a full hour so that it stays the same while the page is open. */
export const sinceOf = (view: UsageView, now: number) => new Date(Math.floor(now / HOUR) * HOUR - view.days * 24 * HOUR).toISOString();

/** 5400 -> "1.5 h", 90 -> "1.5 min", with a space that does not break */
export function slotTime(seconds: number): string {
  if (seconds === 0) return "0\u00a0h";
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))}\u00a0s`;
  const [value, unit] = seconds < 3600 ? [seconds / 60, "min"] : [seconds / 3600, "h"];
  return `${value.toLocaleString("en-GB", { maximumFractionDigits: value < 1000 ? 1 : 0 })}\u00a0${unit}`;
}

/** 1234.5 -> "1,234.50 EUR" */
export const money = (amount: number, currency: string): string => `${amount.toLocaleString("en-GB", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}\u00a0${currency}`;

/** Values are seconds of slots or amounts of the currency, one for each bucket. */
export type Part = { key: string; label: string; values: number[]; total: number };

const MOST_PARTS = 6; // one for each color of a series

/** The series of the chart, in the order in which they are stacked. Names after the largest ones are one part together. */
export function partsOf(series: readonly UsageSeriesRow[], { stack, measure }: Pick<UsageView, "stack" | "measure">, label: (code: string) => string): Part[] {
  const parts = series.map(({ name, team, slot_seconds, cost }) => ({
    key: name === null ? `others of ${team?.id ?? ""}` : name.id,
    label: name === null ? (team === null ? `Other ${stack}s` : `Other projects of ${team.name}`) : stack === "team" || stack === "project" ? name.name : label(name.id),
    values: measure === "cost" ? cost : slot_seconds,
    total: sum(measure === "cost" ? cost : slot_seconds),
  }));
  if (stack === "outcome" || stack === "phase") return parts;
  if (parts.length <= MOST_PARTS) return parts;
  const rest = parts.slice(MOST_PARTS - 1);
  const values = (rest[0]?.values ?? []).map((_, bucket) => sum(rest.map((part) => part.values[bucket] ?? 0)));
  return [...parts.slice(0, MOST_PARTS - 1), { key: "the rest", label: `${rest.length} more`, values, total: sum(values) }];
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

/** A round time or amount at or above the largest bar. */
export function axisTop(parts: readonly Part[], measure: UsageView["measure"]): number {
  const bars = (parts[0]?.values ?? []).map((_, bucket) => sum(parts.map((part) => part.values[bucket] ?? 0)));
  const largest = Math.max(0, ...bars);
  const base = measure === "cost" ? 0.01 : largest < 60 ? 1 : largest < 3600 ? 60 : 3600;
  const power = base * 10 ** Math.max(0, Math.floor(Math.log10(largest / base)));
  return power * ([2, 4, 6, 8].find((step) => step * power >= largest) ?? 10);
}

export function rowName(row: UsageRow, by: UsageView["by"]): string {
  const name = row[by];
  if (name !== null) return name.name;
  return by !== "team" && row.team !== null ? `Other ${by}s of ${row.team.name}` : `Other ${by}s`;
}

/** Dropped and lost tokens as a part of the generated ones; null without any. */
export function wastedShare({ generated, wasted }: UsageRow["tokens"]): number | null {
  return generated === null || wasted === null || generated === 0 ? null : wasted / generated;
}
