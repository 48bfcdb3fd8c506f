import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState, useSyncExternalStore } from "react";

import { Problem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import type { Histogram, RunDetail } from "../api/schema.d.ts";
import type { Frame } from "../stream/connection.ts";
import { stream } from "../stream/stream.ts";
import { MetricsStore, type PointsFrame } from "./metrics-store.ts";

const REDRAW_MILLISECONDS = 120;
const MOST_POINTS = 4_000; // a longer series comes as that many buckets

/**
 * Follows one run: the metric series are read once, then every frame of its topic lands where the page looks for
 * it. A gap reads everything again.
 */
export function useLiveRun(runId: string): { metrics: MetricsStore; error: unknown } {
  const client = useQueryClient();
  const metrics = useMemo(() => new MetricsStore((then) => void window.setTimeout(then, REDRAW_MILLISECONDS)), [runId]);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    const aborted = new AbortController();
    let leave = () => {};
    let retry: number | undefined;
    const read = async (): Promise<number> => {
      // What arrives between the two reads is in the second or comes again as a frame: the smaller seq covers both.
      const steps = await queries.runMetrics(runId, { axis: "step", max_points: MOST_POINTS }, aborted.signal);
      const times = await queries.runMetrics(runId, { axis: "time", max_points: MOST_POINTS }, aborted.signal);
      metrics.replace([...steps.series, ...times.series]);
      setError(null);
      return Math.min(steps.seq, times.seq);
    };
    /** Reads until it succeeds; a lost control plane must not leave the page without its stream for good. */
    const readThen = (then: (seq: number) => void) => {
      read().then(then, (failure: unknown) => {
        if (aborted.signal.aborted) return;
        setError(failure);
        if (failure instanceof Problem && failure.status >= 400 && failure.status < 500) return;
        retry = window.setTimeout(() => readThen(then), 3_000);
      });
    };
    readThen((seq) => {
      leave = stream.subscribe(`run:${runId}`, seq, {
        onFrame: (frame) => receive(client, runId, metrics, frame),
        onGap: (resumeAfter) => {
          void client.invalidateQueries({ queryKey: ["run", runId] });
          readThen(resumeAfter);
        },
      });
    });
    return () => {
      aborted.abort();
      window.clearTimeout(retry);
      leave();
    };
  }, [client, metrics, runId]);

  return { metrics, error };
}

/** Re-renders the caller when points were added. */
export function useMetricsVersion(metrics: MetricsStore): number {
  return useSyncExternalStore(metrics.watch, metrics.getVersion);
}

function receive(client: QueryClient, runId: string, metrics: MetricsStore, frame: Frame): void {
  const key = (...rest: string[]) => ["run", runId, ...rest];
  switch (frame.type) {
    case "points":
      metrics.add(frame.data as PointsFrame, frame.ts);
      break;
    case "histogram": {
      const { name, ...histogram } = frame.data as { name: string } & Histogram;
      client.setQueryData(queries.runHistograms(runId, name).queryKey, (old) =>
        old === undefined ? old : { ...old, data: [...old.data, histogram] });
      break;
    }
    case "state": {
      const { name, value, at } = frame.data as { name: string; value: Record<string, unknown>; at: number };
      client.setQueryData(queries.runDocument(runId, name).queryKey, () => ({ name, at, value }));
      break;
    }
    case "progress":
      client.setQueryData(queries.run(runId).queryKey, (old) => (old === undefined ? old : { ...old, progress: frame.data as RunDetail["progress"] }));
      break;
    case "status":
      client.setQueryData(queries.run(runId).queryKey, (old) => (old === undefined ? old : { ...old, ...(frame.data as Partial<RunDetail>) }));
      void client.invalidateQueries({ queryKey: key(), exact: true });
      void client.invalidateQueries({ queryKey: key("jobs") });
      void client.invalidateQueries({ queryKey: key("attempts") });
      break;
    case "event":
      void client.invalidateQueries({ queryKey: key("events") });
      void client.invalidateQueries({ queryKey: key("jobs") });
      break;
    case "checkpoint":
      void client.invalidateQueries({ queryKey: key("checkpoints") });
      break;
    case "alert":
      void client.invalidateQueries({ queryKey: key("alerts") });
      break;
    case "trajectory":
      void client.invalidateQueries({ queryKey: key("trajectories") });
      break;
    default:
      break; // a frame type that this page does not know yet
  }
}
