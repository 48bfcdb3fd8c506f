import { useQueries } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";

import * as queries from "../api/queries.ts";
import type { Job, RunDetail } from "../api/schema.d.ts";
import { hasEnded } from "../runs/ended.ts";
import type { RunClock } from "../runs/run-axis.ts";
import { runClock } from "../runs/use-run-clock.ts";
import { stream } from "../stream/stream.ts";
import { runStyle, type Slots } from "./compare-view.ts";
import { LiveMetrics } from "./live-metrics.ts";

const REFETCH_MILLISECONDS = 30_000; // jobs and names of metrics are not part of the stream
const OVERVIEW_POINTS = 1_500; // as many as a chart has pixels; a zoom fetches its part again

/** What the charts draw of a run. The same object until something of it changes, so that a train step alone redraws no chart. */
export type ChartedRun = { id: string; name: string; color: number; dashed: boolean; live: LiveMetrics; clock: RunClock };

export type ComparedRun = ChartedRun & { run: RunDetail; names: readonly string[]; charted: ChartedRun };

export type FailedRun = { id: string; error: Error; retry: () => void };

function liveMetrics(id: string): LiveMetrics {
  return new LiveMetrics({
    fetch: async (names) => {
      const signal = new AbortController().signal;
      const query = { names: names.join(), max_points: OVERVIEW_POINTS };
      // A point that arrives between the two is in the second answer or comes again as a frame: the smaller seq misses none.
      const steps = await queries.namedMetrics(id, { ...query, axis: "step" }, signal);
      const times = await queries.namedMetrics(id, { ...query, axis: "time" }, signal);
      return { series: [...steps.series, ...times.series], seq: Math.min(steps.seq, times.seq) };
    },
    subscribe: (seq, listener) => stream.subscribe(`run:${id}`, seq, listener),
    later: (milliseconds, then) => {
      const timer = window.setTimeout(then, milliseconds);
      return () => window.clearTimeout(timer);
    },
  });
}

/** The runs of a comparison in the order of their slots, with their metrics; those that cannot be read apart. */
export function useComparedRuns(slots: Slots): { runs: ComparedRun[]; failed: FailedRun[]; isLoading: boolean } {
  const ids = useMemo(() => slots.filter((id) => id !== null), [slots]);
  const lives = useLives(ids);
  const details = useQueries({ queries: ids.map((id) => ({ ...queries.run(id), retry: false })), combine: asStates });
  const isLive = (index: number) => !hasEnded(details[index]?.data?.status ?? "");
  const options = (index: number) => ({ enabled: details[index]?.data !== undefined, refetchInterval: isLive(index) ? REFETCH_MILLISECONDS : (false as const) });
  const jobs = useQueries({ queries: ids.map((id, index) => ({ ...queries.runJobs(id), ...options(index) })), combine: asData });
  const names = useQueries({ queries: ids.map((id, index) => ({ ...queries.metricNames(id), ...options(index) })), combine: asData });
  const failed = details.flatMap(({ error, data, refetch }, index) => (error !== null && data === undefined ? [{ id: ids[index]!, error, retry: () => void refetch() }] : []));
  const clockOf = useClocks();
  const charted = useRef(new Map<string, ChartedRun>());
  const runs = useMemo(
    () => ids.flatMap((id, index): ComparedRun[] => {
      const [run, live] = [details[index]?.data, lives.get(id)];
      if (run === undefined || live === undefined) return [];
      const now = { id, name: run.name, ...runStyle(slots.indexOf(id)), live, clock: clockOf(run, jobs[index]?.data ?? NO_JOBS) };
      const before = charted.current.get(id);
      const same = before !== undefined && Object.entries(now).every(([key, value]) => before[key as keyof ChartedRun] === value) ? before : now;
      charted.current.set(id, same);
      return [{ ...same, run, names: names[index] ?? NO_NAMES, charted: same }];
    }),
    [ids, lives, slots, details, jobs, names],
  );
  const isLoading = details.some(({ isPending }) => isPending) || details.some(({ data }, index) => data !== undefined && names[index] === undefined);
  return { runs, failed, isLoading };
}

type State<T> = { data: T | undefined; error: Error | null; isPending: boolean; refetch: () => unknown };

// As functions of the module, so that their results change only with the answers.
function asStates<T>(results: State<T>[]): State<T>[] {
  return results.map(({ data, error, isPending, refetch }) => ({ data, error, isPending, refetch }));
}

function asData<T>(results: { data: T | undefined }[]): (T | undefined)[] {
  return results.map(({ data }) => data);
}

/** The metrics of each run, kept while the run is compared. */
function useLives(ids: readonly string[]): ReadonlyMap<string, LiveMetrics> {
  const [lives, setLives] = useState<ReadonlyMap<string, LiveMetrics>>(new Map());
  const current = useRef(lives);
  const key = ids.join();
  useEffect(() => {
    const next = new Map(ids.map((id) => [id, current.current.get(id) ?? liveMetrics(id)]));
    for (const [id, live] of current.current) if (!next.has(id)) live.close();
    current.current = next;
    setLives(next);
  }, [key]);
  useEffect(() => () => {
    for (const live of current.current.values()) live.close();
    current.current = new Map();
  }, []);
  return lives;
}

const NO_JOBS: readonly Job[] = [];
const NO_NAMES: readonly string[] = [];

/** A clock of each run, which changes only with what it is made from. */
function useClocks(): (run: RunDetail, jobs: readonly Job[]) => RunClock {
  const known = useRef(new Map<string, { times: string; jobs: readonly Job[]; clock: RunClock }>());
  return useCallback((run, jobs) => {
    const times = `${run.started_at} ${run.ended_at}`;
    const before = known.current.get(run.id);
    if (before?.times === times && before.jobs === jobs) return before.clock;
    const clock = runClock(run, jobs);
    known.current.set(run.id, { times, jobs, clock });
    return clock;
  }, []);
}

/** The same list until one of its items is another. */
export function useSameList<T>(items: readonly T[]): readonly T[] {
  const before = useRef(items);
  if (before.current.length !== items.length || items.some((item, index) => item !== before.current[index])) before.current = items;
  return before.current;
}

const TABLE_MILLISECONDS = 500;

/** Re-render the caller when points of any run arrive, twice a second at most. */
export function useLiveVersion(runs: readonly ComparedRun[]): number {
  const lives = useSameList(runs.map(({ live }) => live));
  const subscribe = useCallback((listener: () => void) => {
    let timer: number | undefined;
    const later = () => {
      timer ??= window.setTimeout(() => {
        timer = undefined;
        listener();
      }, TABLE_MILLISECONDS);
    };
    const all = lives.map((live) => live.subscribe(later));
    return () => {
      window.clearTimeout(timer);
      all.forEach((unsubscribe) => unsubscribe());
    };
  }, [lives]);
  return useSyncExternalStore(subscribe, () => lives.reduce((sum, live) => sum + live.getVersion(), 0));
}
