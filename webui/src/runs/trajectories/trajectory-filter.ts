import type { paths } from "../../api/schema.d.ts";

export type TrajectoryQuery = Omit<NonNullable<paths["/api/v1/runs/{run_id}/trajectories"]["get"]["parameters"]["query"]>, "cursor" | "limit">;

type Kind = "text" | "whole" | "number" | "choice";

/** The filters of the list, named as in the API and in the URL. The first ones are always visible. */
export const FILTERS = [
  { name: "q", label: "Search", kind: "text", help: "Text in the prompt or the completion, case ignored" },
  { name: "because", label: "Sampled as", kind: "choice", help: "Why the controller kept the trajectory" },
  { name: "finish_reason", label: "Ended by", kind: "choice", help: "How its last turn ended" },
  { name: "reward_min", label: "Reward from", kind: "number", help: "Lowest reward, inclusive" },
  { name: "reward_max", label: "Reward to", kind: "number", help: "Highest reward, inclusive" },
  { name: "step_from", label: "Step from", kind: "whole", help: "First train step that trained it, inclusive" },
  { name: "step_to", label: "Step to", kind: "whole", help: "Last train step that trained it, inclusive" },
  { name: "version", label: "Policy version", kind: "whole", help: "A version between those of its oldest and its newest token" },
  { name: "span_min", label: "Version span from", kind: "whole", help: "Versions from its oldest token to its newest, at least" },
  { name: "reward_result", label: "Reward result", kind: "text", help: "The result that the reward function named, in full" },
  { name: "row", label: "Dataset row", kind: "whole", help: "Row of the dataset, from 0" },
  { name: "attempt", label: "Attempt", kind: "whole", help: "Attempt of the run, from 1" },
  { name: "group", label: "Group", kind: "text", help: "ID of one group" },
] as const satisfies readonly { name: keyof TrajectoryQuery; label: string; kind: Kind; help: string }[];

export type Filter = (typeof FILTERS)[number];
export type FilterName = Filter["name"];

/** What the tab keeps in the URL. */
export const TRAJECTORY_PARAMETERS = ["trajectory", "color", ...FILTERS.map(({ name }) => name)];

export const CHOICES: Partial<Record<FilterName, { value: string; label: string }[]>> = {
  because: [
    { value: "group", label: "Whole group" },
    { value: "highest_reward", label: "Highest reward of its step" },
    { value: "lowest_reward", label: "Lowest reward of its step" },
    { value: "longest", label: "Longest of its step" },
    { value: "widest_span", label: "Widest version span of its step" },
  ],
  finish_reason: [
    { value: "stop", label: "Stop token" },
    { value: "length", label: "Length limit" },
    { value: "abort", label: "Abort" },
  ],
};

/** What is wrong with a typed value. Null for a valid or an empty one. */
export function filterError(kind: Kind, typed: string): string | null {
  const value = typed.trim();
  if (value === "" || kind === "text" || kind === "choice") return null;
  if (!Number.isFinite(Number(value))) return `"${value}" is not a number`;
  if (kind === "whole" && !/^\d+$/.test(value)) return `"${value}" is not a whole number from 0`;
  return null;
}

/** The API query of a URL. Values that the API would reject are left out; their field shows the error. */
export function trajectoryQuery(search: URLSearchParams): TrajectoryQuery {
  const entries = FILTERS.map(({ name, kind }) => [name, kind, search.get(name)?.trim() ?? ""] as const)
    .filter(([, kind, value]) => value !== "" && filterError(kind, value) === null)
    .map(([name, kind, value]) => [name, kind === "whole" || kind === "number" ? Number(value) : value]);
  return Object.fromEntries(entries) as TrajectoryQuery;
}

export function withoutFilters(search: URLSearchParams): URLSearchParams {
  const rest = new URLSearchParams(search);
  for (const { name } of FILTERS) rest.delete(name);
  return rest;
}
