import { concatenate, insert, joinAttempts, type Points } from "../charts/series.ts";

/** Convert an RFC 3339 time or unix seconds to unix seconds, the unit of the charts. */
export function unixSeconds(time: string | number | null | undefined): number {
  if (typeof time === "number") return time;
  const parsed = Date.parse(time ?? "");
  return Number.isNaN(parsed) ? Date.now() / 1000 : parsed / 1000;
}

export type IncomingSeries = {
  name: string; unit: string; axis: string; source: string; attempt: number; x: number[]; value: (number | null)[]; at: (string | number)[];
  /** of a series in buckets: exact extremes, number of points, and how many of them were not finite; null for single points */
  min?: (number | null)[] | null; max?: (number | null)[] | null; count?: number[] | null; nonfinite?: number[] | null;
};

export type PointsFrame = { axis: string; x: number; attempt: number; source?: string; values: Record<string, number | null>; at?: string | number };

export type MetricLine = { name: string; unit: string; axis: string; source: string; points: Points };

type Stored = MetricLine & { attempt: number };

/** The metric series of one run in the browser: fetched once, then extended by the stream. */
export class MetricsStore {
  private series = new Map<string, Stored>();
  private joined = new Map<string, MetricLine[]>();
  private listeners = new Set<() => void>();
  private version = 0;
  private isScheduled = false;
  private readonly schedule: (then: () => void) => void;

  constructor(schedule: (then: () => void) => void) {
    this.schedule = schedule;
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  getVersion = (): number => this.version;

  /** Forget all series and take these. */
  replace(incoming: IncomingSeries[]): void {
    this.series.clear();
    this.merge(incoming);
  }

  /** Take fetched series beside those of other metrics. Newer points, from the stream, stay. */
  merge(incoming: IncomingSeries[]): void {
    for (const entry of incoming) {
      const { name, unit, axis, source, attempt } = entry;
      const points = pointsOf(entry);
      const streamed = this.series.get(keyOf(entry))?.points;
      const end = points.x.at(-1) ?? -Infinity;
      streamed?.x.forEach((x, index) => { if (x > end) insert(points, x, streamed.y[index]!, streamed.at[index]!); });
      this.series.set(keyOf(entry), { name, unit, axis, source, attempt, points });
    }
    this.joined.clear();
    this.scheduleNotification();
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
      // Changes the points in place. Deleting the joined lines makes new objects, so that the charts redraw.
      if (insert(stored.points, frame.x, value, at)) this.joined.delete(name);
    }
    this.scheduleNotification();
  }

  names(): string[] {
    return [...new Set([...this.series.values()].map((entry) => entry.name))].sort();
  }

  /** The lines of a metric, one per source and axis, with all attempts joined. */
  lines(name: string): MetricLine[] {
    const known = this.joined.get(name);
    if (known !== undefined) return known;
    const groups = new Map<string, Stored[]>();
    for (const entry of withoutDuplicates([...this.series.values()].filter((stored) => stored.name === name))) {
      const key = `${entry.axis}|${withoutRestart(entry.source)}`;
      groups.set(key, [...(groups.get(key) ?? []), entry]);
    }
    const lines = [...groups.values()].map((parts) => {
      const ordered = parts.sort((a, b) => a.attempt - b.attempt || restartOf(a.source) - restartOf(b.source));
      const [first] = ordered;
      return {
        name, unit: first!.unit, axis: first!.axis, source: withoutRestart(first!.source),
        // On the time axis x counts from the start of each attempt, so one attempt follows the other.
        points: first!.axis === "time" ? concatenate(ordered.map((part) => part.points)) : joinAttempts(ordered.map((part) => part.points)),
      };
    });
    lines.sort((a, b) => a.source.localeCompare(b.source));
    this.joined.set(name, lines);
    return lines;
  }

  private scheduleNotification(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    this.schedule(() => {
      this.isScheduled = false;
      this.version += 1;
      for (const listener of this.listeners) listener();
    });
  }
}

/** The finite points of a series. A bucket without a finite point has nothing to draw. */
function pointsOf(entry: IncomingSeries): Points {
  const kept = entry.value.map((_, index) => index).filter((index) => entry.value[index] !== null);
  const points: Points = {
    x: kept.map((index) => entry.x[index]!), y: kept.map((index) => entry.value[index]!), at: kept.map((index) => unixSeconds(entry.at[index])),
  };
  const { min, max, count, nonfinite } = entry;
  if (!min || !max || !count) return points;
  const buckets = {
    low: kept.map((index) => min[index]!), high: kept.map((index) => max[index]!),
    count: kept.map((index) => count[index]! - (nonfinite?.[index] ?? 0)),
  };
  return { ...points, buckets };
}

function keyOf(entry: { name: string; axis: string; source: string; attempt: number }): string {
  return `${entry.attempt}|${entry.axis}|${entry.source}|${entry.name}`;
}

/** "rollout-0#2/engine" -> "rollout-0/engine": a job continues its line after a restart in place. */
function withoutRestart(source: string): string {
  return source.replace(/#\d+/, "");
}

function restartOf(source: string): number {
  return Number(/#(\d+)/.exec(source)?.[1] ?? 0);
}

/** Trainer and controller both report the staleness of a batch. Keep only the points of the trainer. */
function withoutDuplicates(entries: Stored[]): Stored[] {
  const isTrainer = (entry: Stored) => entry.source.startsWith("trainer");
  const trainerReports = entries.some((entry) => entry.axis === "step" && isTrainer(entry));
  return trainerReports ? entries.filter((entry) => entry.axis !== "step" || isTrainer(entry)) : entries;
}
