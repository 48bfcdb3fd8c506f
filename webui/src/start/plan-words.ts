import type { DryRun } from "../api/schema.d.ts";
import { compact, duration, grouped, moment, number, words } from "../common/format.ts";
import { count } from "./faults.ts";

/** The kinds of jobs as the documentation calls them. */
const JOBS: Record<string, string> = { rollout: "engine", reward: "reward service" };

/** What a run would take, in words, from the answer of POST /runs/plan. */

export function slotsText({ slots_needed }: Pick<DryRun, "slots_needed">): string {
  return slots_needed === 0 ? "No slot" : count(slots_needed, "slot");
}

/** The jobs that hold slots, equal ones together: "2 rollout workers, 1 slot each". */
export function jobTexts({ jobs }: Pick<DryRun, "jobs">): string[] {
  const alike = new Map<string, { kind: string; slots: number; jobs: number }>();
  for (const { kind, slots } of jobs.filter((job) => job.slots > 0)) {
    const key = `${kind} ${slots}`;
    alike.set(key, { kind, slots, jobs: (alike.get(key)?.jobs ?? 0) + 1 });
  }
  return [...alike.values()].map(({ kind, slots, jobs }) => {
    const name = JOBS[kind] ?? kind;
    return jobs === 1 ? `${words(name)}: ${count(slots, "slot")}` : `${jobs} ${name}s: ${count(slots, "slot")} each`;
  });
}

/** The jobs that run beside these and hold no slot. */
export function otherJobsText({ jobs }: Pick<DryRun, "jobs">): string {
  return [...new Set(jobs.filter((job) => job.slots === 0).map(({ kind }) => JOBS[kind] ?? kind))].join(", ");
}

export function waitText({ placement }: Pick<DryRun, "placement">): string {
  if (placement.starts_now) return "Starts at once: its slots are free.";
  const position = placement.position === null ? "" : `Position ${placement.position} of ${placement.queue_length} in the queue. `;
  return `${position}${sentence(placement.message)}`;
}

/** When it starts, while it waits: likely, and by when almost surely. */
export function startText({ placement: { starts_now, start } }: Pick<DryRun, "placement">): string | null {
  if (starts_now || (start.p50 === null && start.p90 === null)) return null;
  if (start.p50 === null) return `Starts by ${moment(start.p90)} at the latest.`;
  return `Starts around ${moment(start.p50)}${start.p90 === null ? "" : `, with 90 % probability before ${moment(start.p90)}`}.`;
}

export function workText({ groups, tokens }: Pick<DryRun, "groups" | "tokens">): string | null {
  if (groups === null) return null;
  const most = tokens.generated_at_most;
  return `Trains on ${grouped(groups)} groups${most === null ? "" : `, at most ${compact(most)} generated tokens`}.`;
}

export function timeText({ time }: Pick<DryRun, "time">): string {
  if (time.seconds === null) return "Not known: no run of this shape has succeeded in this project yet.";
  const cost = time.gpu_hours === null ? "" : `, ${number(time.gpu_hours, 2)} slot-hours`;
  const most = time.seconds_p90 === null ? "" : ` (90 % take less than ${duration(time.seconds_p90)})`;
  return `About ${duration(time.seconds)}${most}${cost}: ${time.from_runs === 1 ? "as the newest run of this shape took" : `the median of the ${time.from_runs} newest runs of this shape`}.`;
}

function sentence(text: string): string {
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
