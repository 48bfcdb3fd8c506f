import type { Checkpoint, Dataset, Run, RunView, Template } from "../api/schema.d.ts";
import { grouped, words } from "../common/format.ts";
import { searchOf } from "../runs/saved-view-query.ts";

/** One result: what it is, a second line of text, and the path that it opens. */
export type Entry = { id: string; label: string; detail: string; to: string };

export type EntryGroup = { name: string; entries: Entry[] };

export const MAX_PER_GROUP = 6;

/** Whether every word of the query is in the text, in any order and case. An empty query matches. */
export function matches(query: string, text: string): boolean {
  const lower = text.toLowerCase();
  return query.toLowerCase().split(/\s+/).every((word) => lower.includes(word));
}

type Page = { to: string; label: string; key?: string };

export function pageEntries(pages: readonly Page[], query: string): Entry[] {
  return pages
    .filter(({ label }) => matches(query, label))
    .map(({ to, label, key }) => ({ id: `page${to}`, label, detail: key === undefined ? "" : `g ${key}`, to }))
    .sort((one, other) => Number(startsWith(other.label, query)) - Number(startsWith(one.label, query)));
}

export function runEntries(runs: Run[]): Entry[] {
  return runs.slice(0, MAX_PER_GROUP).map((run) => ({
    id: run.id, label: run.name, detail: `${words(run.status.toLowerCase())} · ${run.dataset.ref}`, to: `/runs/${run.id}`,
  }));
}

/** Saved views of the run list by their name. Each opens the list with its filters and order. */
export function viewEntries(views: RunView[], query: string): Entry[] {
  return views
    .filter(({ name }) => matches(query, name))
    .slice(0, MAX_PER_GROUP)
    .map((view) => ({ id: view.id, label: view.name, detail: `view of ${view.owner}`, to: `/runs?${searchOf(view).toString()}` }));
}

/** Templates by name and description. Each opens the start form with its newest version. */
export function templateEntries(templates: Template[], query: string): Entry[] {
  return templates
    .filter(({ name, description }) => matches(query, `${name} ${description}`))
    .slice(0, MAX_PER_GROUP)
    .map(({ id, name, ref, description, of_team: ofTeam }) => ({ id, label: ref, detail: description || (ofTeam ? "template of the team" : "template"), to: `/runs/new?template=${encodeURIComponent(name)}` }));
}

export function datasetEntries(datasets: Dataset[], query: string): Entry[] {
  return datasets
    .filter(({ name, id }) => matches(query, `${name} ${id}`))
    .slice(0, MAX_PER_GROUP)
    .map(({ id, name, latest }) => ({ id, label: name, detail: latest === null ? "no version" : `${latest.ref} · ${grouped(latest.rows)} rows`, to: `/datasets/${id}` }));
}

/** Stored checkpoints by their alias, run, step or id. */
export function checkpointEntries(checkpoints: Checkpoint[], query: string): Entry[] {
  return checkpoints
    .filter(({ state }) => state === "STORED")
    .filter(({ id, run, step, aliases }) => matches(query, `${aliases.join(" ")} ${run.name} step ${step} ${id}`))
    .slice(0, MAX_PER_GROUP)
    .map(({ id, run, step, kind, aliases }) => ({
      id, label: aliases.length > 0 ? `${aliases.join(", ")}: ${run.name}, step ${step}` : `${run.name}, step ${step}`, detail: kind, to: `/checkpoints/${id}`,
    }));
}

/** The entry that an arrow key reaches. It goes around at both ends. */
export function nextEntry(entries: Entry[], active: string | undefined, key: string): string | undefined {
  const step = key === "ArrowDown" ? 1 : key === "ArrowUp" ? -1 : null;
  if (step === null || entries.length === 0) return undefined;
  const index = entries.findIndex(({ id }) => id === active);
  return entries[(index + step + entries.length) % entries.length]!.id;
}

function startsWith(label: string, query: string): boolean {
  return label.toLowerCase().startsWith(query.toLowerCase());
}
