import type { LeavingRun, Node } from "../api/schema.d.ts";

/** The units of a deadline in the drain dialog, in seconds. */
export const UNIT_SECONDS = { minutes: 60, hours: 3_600, days: 86_400 };
export type Unit = keyof typeof UNIT_SECONDS;

/** The most time that the API allows for a drain, in each unit. */
export const MAX_AMOUNT: Record<Unit, number> = { minutes: 43_200, hours: 720, days: 30 };

const STAGES: Record<LeavingRun["stage"], string> = {
  staying: "may finish until the deadline",
  stopping: "saves and stops",
  uploading: "uploads its checkpoint",
};

/** The body of a drain request. An empty amount means no deadline. */
export function drainBody(amount: number | string, unit: Unit): { deadline_seconds?: number } {
  return amount === "" ? {} : { deadline_seconds: Math.round(Number(amount) * UNIT_SECONDS[unit]) };
}

/** The runs that are still on the node. */
export function leavingFrom(node: { id: string }, leaving: LeavingRun[]): LeavingRun[] {
  return leaving.filter((run) => run.node.id === node.id);
}

/** Whether the node is drained, which its status does not say while the node does not respond. */
export function isDrained(node: Pick<Node, "id" | "status" | "drain_deadline">, leaving: LeavingRun[]): boolean {
  return node.status === "DRAINING" || node.status === "DRAINED" || node.drain_deadline !== null || leavingFrom(node, leaving).length > 0;
}

/** "staying" -> "may finish until the deadline". */
export function stageText(run: Pick<LeavingRun, "stage">): string {
  return STAGES[run.stage];
}

/** When what is left on the node is stopped, as time left: "in 1 h 30 min". */
export function deadlineText(deadline: string | null, now: number): string {
  if (deadline === null) return "no deadline";
  const left = Date.parse(deadline) - now;
  if (left <= 0) return "the deadline has passed; jobs that are left are stopped";
  return `jobs that are left are stopped in ${timeLeft(Math.max(1, Math.round(left / 60_000)))}`;
}

function timeLeft(minutes: number): string {
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
