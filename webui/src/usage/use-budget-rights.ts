import { useQuery } from "@tanstack/react-query";

import * as queries from "../api/queries.ts";
import type { Budget, ListedProject, PoolSettings } from "../api/schema.d.ts";
import { pools as poolsQuery } from "../api/team-queries.ts";
import { may } from "../common/permission.ts";

/** In which pools the caller may set budgets, and of which projects. */
export type BudgetRights = { pools: PoolSettings[]; projects: ListedProject[] };

/** Pool admins set the budgets of teams; admins of a team those of its projects, in any pool that they see. */
export function useBudgetRights(): BudgetRights {
  const me = useQuery(queries.me).data;
  const pools = useQuery(poolsQuery).data ?? [];
  const isTeamAdmin = may(me, "team:admin");
  const all = useQuery({ ...queries.projects, enabled: isTeamAdmin }).data?.data ?? [];
  return { pools: isTeamAdmin ? pools : pools.filter(({ may_manage }) => may_manage), projects: isTeamAdmin ? all.filter(({ team }) => team.id === me?.team.id) : [] };
}

/** Why the caller may not change this budget. Null when they may. */
export function budgetDenied({ pools, projects }: BudgetRights, pool: string, { project }: Budget): string | null {
  if (project === null) return pools.some(({ name, may_manage }) => name === pool && may_manage) ? null : "Admins of the pool set the budgets of teams.";
  return projects.some(({ id }) => id === project.id) ? null : "Admins of the team set the budgets of its projects.";
}
