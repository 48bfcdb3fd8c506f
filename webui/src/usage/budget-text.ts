import type { Budget } from "../api/schema.d.ts";
import { money } from "./usage-view.ts";

export const ownerOf = ({ team, project }: Pick<Budget, "team" | "project">) => (project === null ? `Team ${team.name}` : `Project ${project.name}`);

const hours = (value: number) => value.toLocaleString("en-GB", { maximumFractionDigits: 1 });

/** "412.5 of 500 GPU-hours, 990.00 EUR of 1,200.00 EUR" */
export function budgetAmounts(budget: Budget): string {
  const parts: string[] = [];
  if (budget.gpu_hours !== null) parts.push(`${hours(budget.used_gpu_hours)} of ${hours(Number(budget.gpu_hours))} GPU-hours`);
  if (budget.cost !== null) parts.push(`${money(budget.used_cost, budget.currency)} of ${money(Number(budget.cost), budget.currency)}`);
  return parts.join(", ");
}

/** "412.5 GPU-hours, 990.00 EUR" */
export const usedText = (budget: Budget): string => `${hours(budget.used_gpu_hours)} GPU-hours, ${money(budget.used_cost, budget.currency)}`;
