import { chosenTimeZone } from "./time-zone.ts";

/** Format numbers and times for display. A dash means that there is no value. */

export const DASH = "–";

export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || Number.isNaN(value)) return DASH;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e15 || size < 1e-3) return value.toExponential(1).replace("e+", "e");
  if (size >= 1000) return grouped(Math.round(value));
  if (Number.isInteger(value)) return String(value);
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? Math.min(digits, 2) : digits);
}

export function grouped(value: number | null | undefined): string {
  return value === null || value === undefined ? DASH : new Intl.NumberFormat("en-GB").format(value);
}

/** 12345 -> "12.3k", for counts with little space. */
export function compact(value: number | null | undefined): string {
  if (value === null || value === undefined) return DASH;
  return new Intl.NumberFormat("en-GB", { notation: "compact", maximumFractionDigits: 1 }).format(value).toLowerCase();
}

export function percent(fraction: number | null | undefined, digits = 1): string {
  if (fraction === null || fraction === undefined || Number.isNaN(fraction)) return DASH;
  return `${(fraction * 100).toFixed(digits)} %`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return DASH;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = value;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(size >= 100 ? 0 : 1)} ${units[unit]}`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return DASH;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  return hours > 0 ? `${hours} h ${String(minutes).padStart(2, "0")} min` : `${minutes} min ${String(rest).padStart(2, "0")} s`;
}

/** 75 -> "1:15", for the time axis. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  return hours > 0
    ? `${hours}:${String(minutes).padStart(2, "0")}:${String(rest).padStart(2, "0")}`
    : `${minutes}:${String(rest).padStart(2, "0")}`;
}

export function timeOfDay(at: string | number | null | undefined, timeZone = chosenTimeZone()): string {
  if (at === null || at === undefined) return DASH;
  return new Date(at).toLocaleTimeString("en-GB", { timeZone });
}

export function moment(at: string | null | undefined, timeZone = chosenTimeZone()): string {
  if (!at) return DASH;
  return new Date(at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium", timeZone });
}

export function ago(at: string | null | undefined, now = Date.now()): string {
  if (!at) return DASH;
  const seconds = Math.max(0, (now - Date.parse(at)) / 1000);
  if (seconds < 45) return "just now";
  if (seconds < 3_600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
  if (seconds < 86_400) return `${Math.round(seconds / 3_600)} h ago`;
  return `${Math.round(seconds / 86_400)} d ago`;
}

/** "stopped_by_user" -> "Stopped by user", for codes without a label of their own. */
export function words(code: string): string {
  const spaced = code.replaceAll(/[_-]+/g, " ").trim();
  return spaced === "" ? "" : spaced.charAt(0).toUpperCase() + spaced.slice(1);
}
