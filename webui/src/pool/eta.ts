/** When a run starts or ends, in words. */

import type { Eta } from "../api/schema.d.ts";

/** "in 12 min", with the later bound below; what is unknown is called unknown, with the reason. */
export interface EtaText {
  text: string;
  detail: string; // "90 % within 45 min", or why it is unknown; may be empty
}

export function etaText(eta: Eta, now: number): EtaText {
  if (eta.p50 === null && eta.p90 === null) return { text: "unknown", detail: eta.message };
  if (eta.p50 === null) return { text: `within ${span(eta.p90, now)}`, detail: "at the latest; no estimate" };
  const soon = Date.parse(eta.p50) - now < 30_000;
  const detail = eta.p90 === null ? "may take longer" : `90 % within ${span(eta.p90, now)}`;
  return { text: soon ? "any moment" : `in ${span(eta.p50, now)}`, detail };
}

function span(at: string | null, now: number): string {
  const minutes = Math.max(1, Math.round((Date.parse(at ?? "") - now) / 60_000));
  if (minutes < 90) return `${minutes} min`;
  const hours = minutes / 60;
  if (hours < 48) return `${hours < 10 ? hours.toFixed(1) : Math.round(hours)} h`;
  return `${Math.round(hours / 24)} d`;
}
