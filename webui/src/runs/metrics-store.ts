import { insert, joinAttempts, type Points } from "../charts/series.ts";

/** Moments come as RFC 3339 text or unix seconds; charts count in unix seconds. */
export function unixSeconds(moment: string | number | null | undefined): number {
  if (typeof moment === "number") return moment;
  const parsed = Date.parse(moment ?? "");
  return Number.isNaN(parsed) ? Date.now() / 1000 : parsed / 1000;
}

export type IncomingSeries = {
  name: string; unit: string; axis: string; source: string; attempt: number; x: number[]; value: (number | null)[]; at: (string | number)[];
};

export type PointsFrame = { axis: string; x: number; attempt: number; source?: string; values: Record<string, number | null>; at?: string | number };

export type MetricLine = { name: string; unit: string; axis: string; source: string; points: Points };

type Stored = MetricLine & { attempt: number };

/** The metric series of one run in the browser: read once, then grown by the stream. */
export class MetricsStore {
  private series = new Map<string, Stored>();
  private joined = new Map<string, MetricLine[]>();
  private watchers = new Set<() => void>();
  private version = 0;
  private announced = false;
  private readonly soon: (then: () => void) => void;

  constructor(soon: (then: () => void) => void) {
    this.soon = soon;
  }

  watch = (changed: () => void): (() => void) => {
    this.watchers.add(changed);
    return () => this.watchers.delete(changed);
  };

  getVersion = (): number => this.version;

  replace(incoming: IncomingSeries[]): void {
    this.series.clear();
    for (const entry of incoming) {
      const points: Points = { x: [], y: [], at: [] };
      entry.value.forEach((value, index) => {
        if (value === null) return; // it was not finite: there is nothing to draw
        points.x.push(entry.x[index]!);
        points.y.push(value);
        points.at.push(unixSeconds(entry.at[index]));
      });
      this.series.set(keyOf(entry), { ...entry, points });
    }
    this.joined.clear();
    this.changed();
  }

  add(frame: PointsFrame, ts: string | number | undefined): void {
    const at = unixSeconds(frame.at ?? ts);
    for (const [name, value] of Object.entries(frame.values)) {
      if (value === null) continue;
      const identity = { name, axis: frame.axis, source: frame.source ?? "", attempt: frame.attempt };
      const key = keyOf(identity);
      let stored = this.series.get(key);
      if (stored === undefined) {
        stored = { ...identity, unit: "", points: { x: [], y: [], at: [] } };
        this.series.set(key, stored);
      }
      // Grown in place: the lines made of it anew are other objects, by which a chart sees that it must redraw.
      if (insert(stored.points, frame.x, value, at)) this.joined.delete(name);
    }
    this.changed();
  }

  names(): string[] {
    return [...new Set([...this.series.values()].map((entry) => entry.name))].sort();
  }

  /** One line per source and axis of a metric, its attempts joined. */
  lines(name: string): MetricLine[] {
    const known = this.joined.get(name);
    if (known !== undefined) return known;
    const groups = new Map<string, Stored[]>();
    for (const entry of withoutEchoes([...this.series.values()].filter((stored) => stored.name === name))) {
      const key = `${entry.axis}|${withoutRestart(entry.source)}`;
      groups.set(key, [...(groups.get(key) ?? []), entry]);
    }
    const lines = [...groups.values()].map((parts) => {
      const ordered = parts.sort((a, b) => a.attempt - b.attempt || restartOf(a.source) - restartOf(b.source));
      const [first] = ordered;
      return {
        name, unit: first!.unit, axis: first!.axis, source: withoutRestart(first!.source),
        // On the time axis x counts from each attempt's own beginning: attempts follow one another by their moments.
        points: first!.axis === "time" ? inOrderOfMoments(ordered) : joinAttempts(ordered.map((part) => part.points)),
      };
    });
    lines.sort((a, b) => a.source.localeCompare(b.source));
    this.joined.set(name, lines);
    return lines;
  }

  private changed(): void {
    if (this.announced) return;
    this.announced = true;
    this.soon(() => {
      this.announced = false;
      this.version += 1;
      for (const changed of this.watchers) changed();
    });
  }
}

function keyOf(entry: { name: string; axis: string; source: string; attempt: number }): string {
  return `${entry.attempt}|${entry.axis}|${entry.source}|${entry.name}`;
}

/** "rollout-0#2/engine" is job rollout-0 after its second restart in place; its line goes on from the first's. */
function withoutRestart(source: string): string {
  return source.replace(/#\d+/, "");
}

function restartOf(source: string): number {
  return Number(/#(\d+)/.exec(source)?.[1] ?? 0);
}

/** Trainer and controller both report a batch's staleness per step: one of the two is enough. */
function withoutEchoes(entries: Stored[]): Stored[] {
  const isTrainer = (entry: Stored) => entry.source.startsWith("trainer");
  const trainerReports = entries.some((entry) => entry.axis === "step" && isTrainer(entry));
  return trainerReports ? entries.filter((entry) => entry.axis !== "step" || isTrainer(entry)) : entries;
}

function inOrderOfMoments(parts: Stored[]): Points {
  return parts.reduce<Points>(
    (all, { points }) => ({ x: [...all.x, ...points.x], y: [...all.y, ...points.y], at: [...all.at, ...points.at] }),
    { x: [], y: [], at: [] },
  );
}
