import type { Alert, Run } from "../api/schema.d.ts";
import { isPausedByError, reasonOf } from "../runs/run-reason.ts";

/** One thing that somebody should look at: a status or severity to show as a badge, what happened, and what to do. */
export type Item = { key: string; run: Run; badge: string; text: string; advice: string; at: string };

export type Sources = { flagged: Run[]; failed: Run[]; running: Run[]; waiting: Run[]; alerts: ReadonlyMap<string, Alert[]> };

/** Failures older than this are history, not news. */
export const FAILED_DAYS = 7;

const DAY_MILLISECONDS = 86_400_000;
const ORDER = ["PAUSED_BY_ERROR", "critical", "DEGRADED", "UNRESPONSIVE", "NEEDS_ATTENTION", "FAILED", "warning", "info", "QUEUED"];

/** What needs attention, most urgent first, then newest first. A run with open alerts is listed by them alone. */
export function attentionItems({ flagged, failed, running, waiting, alerts }: Sources, now: number): Item[] {
  const active = unique([...flagged, ...running]);
  const flaggedIds = new Set(flagged.map((run) => run.id));
  const recent = failed.filter((run) => run.ended_at !== null && now - Date.parse(run.ended_at) < FAILED_DAYS * DAY_MILLISECONDS);
  const items = [
    ...active.flatMap((run) => itemsOfActive(run, alerts.get(run.id) ?? [], flaggedIds.has(run.id))),
    ...recent.map((run) => itemOf(run, "FAILED")),
    ...waiting.map((run) => itemOf(run, "QUEUED")),
  ];
  return items.sort((one, other) => ORDER.indexOf(one.badge) - ORDER.indexOf(other.badge) || Date.parse(other.at) - Date.parse(one.at));
}

function itemsOfActive(run: Run, alerts: Alert[], isFlagged: boolean): Item[] {
  if (isPausedByError(run)) return [itemOf(run, "PAUSED_BY_ERROR")];
  if (alerts.length > 0) return alerts.map((alert) => ({ key: alert.id, run, badge: alert.severity, text: `${alert.title}: ${alert.message}`, advice: alert.advice, at: alert.opened_at }));
  const condition = ["DEGRADED", "UNRESPONSIVE", "NEEDS_ATTENTION"].find((name) => run.conditions.includes(name));
  return isFlagged && condition !== undefined ? [itemOf(run, condition)] : [];
}

function itemOf(run: Run, badge: string): Item {
  return { key: `${run.id} ${badge}`, run, badge, text: reasonOf(run)?.text ?? "", advice: run.advice, at: run.ended_at ?? run.status_at };
}

function unique(runs: Run[]): Run[] {
  return [...new Map(runs.map((run) => [run.id, run])).values()];
}
