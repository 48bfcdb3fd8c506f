import type { MaintenanceWindow, Reservation } from "../api/schema.d.ts";
import { timeOfDay } from "../common/format.ts";
import { chosenTimeZone } from "../common/time-zone.ts";

export type Entry = { kind: "reservation"; of: Reservation } | { kind: "maintenance"; of: MaintenanceWindow };

/** How long the axis of the calendar is. */
export const AXIS_HOURS = 48;
const HOUR = 3_600_000;

/** The units of a duration in the dialogs, in seconds. */
export const UNIT_SECONDS = { minutes: 60, hours: 3_600, days: 86_400 };
export type Unit = keyof typeof UNIT_SECONDS;

/** Reservations and maintenance windows in one list, the next one first. */
export function entriesOf(reservations: Reservation[], windows: MaintenanceWindow[]): Entry[] {
  const entries: Entry[] = [...reservations.map((of) => ({ kind: "reservation" as const, of })), ...windows.map((of) => ({ kind: "maintenance" as const, of }))];
  return entries.sort((a, b) => Date.parse(a.of.starts_at) - Date.parse(b.of.starts_at) || a.of.id.localeCompare(b.of.id));
}

/** "team blue", "project demo of team blue", "Maintenance". */
export function whoseText(entry: Entry): string {
  if (entry.kind === "maintenance") return "Maintenance";
  const { team, project } = entry.of;
  return project === null ? `team ${team.name}` : `project ${project.name} of team ${team.name}`;
}

/** "8 slots on gpu-1, gpu-2", "8 slots, 4 of them on gpu-1", "gpu-3", "every node". */
export function whereText(entry: Entry, now: number): string {
  if (entry.kind === "maintenance") return entry.of.whole_pool ? "every node" : names(entry.of.nodes);
  const { slots, device, nodes, allocation } = entry.of;
  const count = `${slots} ${device === "" ? "" : `${device} `}slot${slots === 1 ? "" : "s"}`;
  if (nodes.length > 0) return `${count}: all of ${names(nodes)}`;
  const chosen = allocation.reduce((sum, one) => sum + one.slots.length, 0);
  if (chosen === 0) return Date.parse(entry.of.starts_at) - now > 24 * HOUR ? `${count}, on nodes chosen 24 h before the start` : `${count}: no node can hold them now`;
  return `${count}${chosen < slots ? `, ${chosen} of them` : ""} on ${names(allocation.map(({ node }) => node))}`;
}

function names(nodes: { name: string }[]): string {
  return nodes.length <= 3 ? nodes.map(({ name }) => name).join(", ") : `${nodes.slice(0, 3).map(({ name }) => name).join(", ")} and ${nodes.length - 3} more`;
}

/** The part of the axis that a period takes, as fractions of it. Null when it is not on the axis. */
export function barOf({ starts_at, ends_at }: { starts_at: string; ends_at: string }, now: number): { left: number; width: number } | null {
  const length = AXIS_HOURS * HOUR;
  const left = Math.max(0, (Date.parse(starts_at) - now) / length);
  const right = Math.min(1, (Date.parse(ends_at) - now) / length);
  return right <= 0 || left >= 1 ? null : { left, width: right - left };
}

/** "14:00 to 16:00" of one day, with the dates where they differ. */
export function periodText({ starts_at, ends_at }: { starts_at: string; ends_at: string }, now: number, timeZone = chosenTimeZone()): string {
  const day = (at: string | number) => new Date(at).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone });
  const time = (at: string) => timeOfDay(at, timeZone).slice(0, 5);
  const from = day(starts_at) === day(now) ? time(starts_at) : `${day(starts_at)} ${time(starts_at)}`;
  return day(starts_at) === day(ends_at) ? `${from} to ${time(ends_at)}` : `${from} to ${day(ends_at)} ${time(ends_at)}`;
}

export type PeriodForm = { start: string; amount: number | string; unit: Unit };

/** The period of a form as the API takes it. An empty start is now. */
export function periodBody({ start, amount, unit }: PeriodForm): { starts_at?: string; duration_seconds: number } {
  const duration_seconds = Math.round(Number(amount) * UNIT_SECONDS[unit]);
  return start === "" ? { duration_seconds } : { starts_at: new Date(start).toISOString(), duration_seconds };
}

/** The running or next reservation of each slot, by node and slot: "reserved for team blue". */
export function reservedSlots(reservations: Reservation[]): Map<string, Reservation> {
  const found = new Map<string, Reservation>();
  for (const one of [...reservations].sort((a, b) => Date.parse(a.starts_at) - Date.parse(b.starts_at))) {
    for (const { node, slots } of one.allocation) for (const slot of slots) if (!found.has(`${node.id}/${slot}`)) found.set(`${node.id}/${slot}`, one);
  }
  return found;
}
