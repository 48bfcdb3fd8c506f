import { Problem } from "../api/problem.ts";
import { MetricsStore, type IncomingSeries, type PointsFrame } from "../runs/metrics-store.ts";
import type { Frame, Listener } from "../stream/connection.ts";

export type Environment = {
  /** the series of the metrics, and the position of the stream from before they were read */
  fetch: (names: readonly string[]) => Promise<{ series: IncomingSeries[]; seq: number }>;
  subscribe: (seq: number, listener: Listener) => () => void;
  /** calls `then` after a while and returns a function that cancels it */
  later: (milliseconds: number, then: () => void) => () => void;
};

const REDRAW_MILLISECONDS = 120;
const RETRY_MILLISECONDS = 3_000;

/** Some metrics of one run: each is fetched when it is first wanted, and the stream extends all of them. */
export class LiveMetrics {
  readonly store: MetricsStore;
  error: unknown = null;
  private readonly environment: Environment;
  private readonly wanted = new Set<string>();
  private readonly missing = new Set<string>();
  private readonly listeners = new Set<() => void>();
  private isFetching = false;
  private isClosed = false;
  private version = 0;
  private unsubscribe: (() => void) | null = null;
  private cancelRetry: (() => void) | null = null;

  constructor(environment: Environment) {
    this.environment = environment;
    this.store = new MetricsStore((then) => void environment.later(REDRAW_MILLISECONDS, then));
  }

  /** Fetch the metrics that are not there yet. */
  want(names: readonly string[]): void {
    for (const name of names) {
      if (this.wanted.has(name)) continue;
      this.wanted.add(name);
      this.missing.add(name);
    }
    if (this.missing.size > 0 && !this.isFetching) void this.fetchMissing();
  }

  /** Whether a metric was fetched, with or without points. */
  has(name: string): boolean {
    return this.wanted.has(name) && !this.missing.has(name);
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    const unsubscribe = this.store.subscribe(listener);
    return () => {
      this.listeners.delete(listener);
      unsubscribe();
    };
  };

  getVersion = (): number => this.version + this.store.getVersion();

  close(): void {
    this.isClosed = true;
    this.unsubscribe?.();
    this.cancelRetry?.();
  }

  private async fetchMissing(): Promise<void> {
    this.isFetching = true;
    const names = [...this.missing];
    try {
      const { series, seq } = await this.environment.fetch(names);
      if (this.isClosed) return;
      this.store.merge(series);
      for (const name of names) this.missing.delete(name);
      this.unsubscribe ??= this.environment.subscribe(seq, { onFrame: (frame) => this.apply(frame), onGap: (resumeAfter) => this.refetch(resumeAfter) });
      this.report(null);
    } catch (error) {
      this.fail(error);
      return;
    }
    this.isFetching = false;
    if (this.missing.size > 0) void this.fetchMissing();
  }

  /** A run that does not exist stays so. Anything else is tried again, so that the page survives an outage. */
  private fail(error: unknown): void {
    if (this.isClosed) return;
    this.isFetching = false;
    this.report(error);
    if (error instanceof Problem && error.status >= 400 && error.status < 500) return;
    this.cancelRetry = this.environment.later(RETRY_MILLISECONDS, () => void this.fetchMissing());
  }

  /** Frames were lost: fetch everything again, then go on after it. */
  private refetch(resumeAfter: (seq: number) => void): void {
    this.environment.fetch([...this.wanted]).then(
      ({ series, seq }) => {
        if (this.isClosed) return;
        this.store.replace(series);
        this.report(null);
        resumeAfter(seq);
      },
      (error: unknown) => {
        if (this.isClosed) return;
        this.report(error);
        this.cancelRetry = this.environment.later(RETRY_MILLISECONDS, () => this.refetch(resumeAfter));
      },
    );
  }

  private apply(frame: Frame): void {
    if (frame.type !== "points") return;
    const points = frame.data as PointsFrame;
    const values = Object.fromEntries(Object.entries(points.values).filter(([name]) => this.wanted.has(name)));
    if (Object.keys(values).length > 0) this.store.add({ ...points, values }, frame.ts);
  }

  private report(error: unknown): void {
    this.error = error;
    this.version += 1;
    for (const listener of this.listeners) listener();
  }
}
