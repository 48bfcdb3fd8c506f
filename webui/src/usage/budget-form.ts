import type { Budget } from "../api/schema.d.ts";

/** Whose budget: of a team, or of one of its projects. */
export type Owner = { kind: "team" | "project"; id: string; name: string };

export type BudgetForm = { hours: string; cost: string };

export const ownerKey = ({ kind, id }: Owner) => `${kind} ${id}`;

export const ownedBy = ({ team, project }: Budget): Owner => (project === null ? { kind: "team", ...team } : { kind: "project", ...project });

const asText = (limit: string | null) => (limit === null ? "" : String(Number(limit)));

export const formOf = (budget: Budget | undefined): BudgetForm => ({ hours: asText(budget?.gpu_hours ?? null), cost: asText(budget?.cost ?? null) });

const limit = (text: string) => (text.trim() === "" ? null : text.trim());

/** A field that is empty lifts its limit. */
export const bodyOf = (form: BudgetForm) => ({ gpu_hours: limit(form.hours), cost: limit(form.cost) });

export const isEmpty = (form: BudgetForm) => limit(form.hours) === null && limit(form.cost) === null;

/** Whether a limit is at or below what is used this month. */
export function isUsedUp(form: BudgetForm, budget: Budget | undefined): boolean {
  const reached = (text: string, used: number) => limit(text) !== null && Number(text) <= used;
  return budget !== undefined && (reached(form.hours, budget.used_gpu_hours) || reached(form.cost, budget.used_cost));
}
