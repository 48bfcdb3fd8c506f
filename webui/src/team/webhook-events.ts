import type { Delivery, Webhook, WebhookEventType } from "../api/schema.d.ts";

/** Every type that one can subscribe to, with when it is sent. The compiler finds a type of the API that is missing here. */
export const EVENTS: Record<Exclude<WebhookEventType, "webhook.test">, string> = {
  "run.queued": "submitted, resumed, or back in the queue",
  "run.starting": "got its slots",
  "run.running": "all jobs run",
  "run.recovering": "lost its attempt, and gets another",
  "run.pausing": "a pause was requested",
  "run.paused": "paused, by request or by an error",
  "run.stopping": "a stop was requested",
  "run.finalizing": "the last checkpoint follows",
  "run.succeeded": "did all its work",
  "run.stopped": "ended before its work was done",
  "run.failed": "failed, with reason and advice",
  "alert.fired": "an alert rule applies to a run",
  "alert.resolved": "the rule no longer applies",
  "checkpoint.stored": "a checkpoint is in the store",
  "checkpoint.promoted": "an alias points to another checkpoint",
  "node.unresponsive": "a node does not respond",
  "node.lost": "a node is given up",
  "node.quarantined": "several runs failed on a node",
  "sweep.finished": "every run of a sweep ended",
  "webhook.disabled": "another webhook was turned off",
};

const AREAS: Record<string, string> = { run: "Runs", alert: "Alerts", checkpoint: "Checkpoints", node: "Nodes", sweep: "Sweeps", webhook: "Webhooks" };

export type EventGroup = { area: string; title: string; pattern: string; events: string[] };

export const EVENT_GROUPS: EventGroup[] = Object.entries(AREAS).map(([area, title]) => ({
  area, title, pattern: `${area}.*`, events: Object.keys(EVENTS).filter((type) => type.startsWith(`${area}.`)),
}));

/** Whether the chosen patterns match an event or a whole area. */
export function isChosen(patterns: readonly string[], event: string): boolean {
  const area = `${event.split(".")[0]}.*`;
  return patterns.includes("*") || patterns.includes(area) || patterns.includes(event);
}

/** The patterns after a click on one event. A whole area or everything is split up when one of its events is taken out. */
export function toggleEvent(patterns: readonly string[], event: string): string[] {
  const chosen = (Object.keys(EVENTS)).filter((type) => isChosen(patterns, type));
  return shortened(chosen.includes(event) ? chosen.filter((type) => type !== event) : [...chosen, event]);
}

export function toggleArea(patterns: readonly string[], { events }: EventGroup): string[] {
  const chosen = Object.keys(EVENTS).filter((type) => isChosen(patterns, type));
  const hasAll = events.every((type) => chosen.includes(type));
  return shortened(hasAll ? chosen.filter((type) => !events.includes(type)) : [...chosen, ...events.filter((type) => !chosen.includes(type))]);
}

/** Whole areas as their pattern, so that types of a later version belong to them. */
function shortened(types: string[]): string[] {
  return EVENT_GROUPS.flatMap(({ pattern, events }) => (events.length > 1 && events.every((type) => types.includes(type)) ? [pattern] : events.filter((type) => types.includes(type))));
}

/** ON, FAILING (on, and every try has failed for a while) or OFF. */
export function webhookState(webhook: Webhook): "ON" | "FAILING" | "OFF" {
  if (!webhook.enabled) return "OFF";
  return webhook.failing_since === null ? "ON" : "FAILING";
}

/** What the receiver answered last: "200", "no answer", or a dash before the first try. */
export function lastAnswer(delivery: Delivery): string {
  const last = delivery.log.at(-1);
  if (last === undefined) return "–";
  return last.status === null ? "no answer" : String(last.status);
}
