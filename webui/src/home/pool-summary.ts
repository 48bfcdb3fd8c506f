import type { Pool } from "../api/schema.d.ts";

export type PoolSummary = { total: number; busy: number; free: number; unhealthy: number; readyNodes: number };

type Counted = { slots: { state: string }[]; nodes: { status: string }[] };

/** Slots and nodes of a pool by state. */
export function poolSummary(pool: Counted): PoolSummary {
  const count = (state: string) => pool.slots.filter((slot) => slot.state === state).length;
  return {
    total: pool.slots.length,
    busy: count("held"),
    free: count("free"),
    unhealthy: count("unhealthy"),
    readyNodes: pool.nodes.filter((node) => node.status === "READY").length,
  };
}

/** The quotas that hold for the project, one sentence each. */
export function quotaLines({ quota, project_quota }: Pick<Pool, "quota" | "project_quota">): string[] {
  const lines = [`${quota.team.name} holds ${slots(quota.used_slots)}${limits(quota)}.`];
  if (project_quota.nominal_slots > 0 || project_quota.limit_slots !== null) lines.push(`${project_quota.project.name} holds ${slots(project_quota.used_slots)}${limits(project_quota)}.`);
  return lines;
}

function limits({ nominal_slots, limit_slots }: { nominal_slots: number; limit_slots: number | null }): string {
  const parts = [
    ...(nominal_slots > 0 ? [`${nominal_slots} nominal`] : []),
    limit_slots === null ? "no limit" : `at most ${limit_slots}`,
  ];
  return ` (${parts.join(", ")})`;
}

function slots(count: number): string {
  return `${count} slot${count === 1 ? "" : "s"}`;
}
