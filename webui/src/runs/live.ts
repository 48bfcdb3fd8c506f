import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState, useSyncExternalStore } from "react";

import { Problem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import type { Histogram, RunDetail } from "../api/schema.d.ts";
import type { Frame } from "../stream/connection.ts";
import { stream } from "../stream/stream.ts";
import { MetricsStore, type PointsFrame } from "./metrics-store.ts";

const REDRAW_MILLISECONDS = 120;
const MAX_POINTS = 4_000; // the server reduces a longer series to this many buckets

/**
 * Follow one run: fetch the metric series once, then apply every frame of its topic to the store and the query cache. A
 * gap in the stream fetches everything again.
 */
export function useLiveRun(runId: string): { metrics: MetricsStore; error: unknown } {
  const client = useQueryClient();
  const metrics = useMemo(() => new MetricsStore((then) => void window.setTimeout(then, REDRAW_MILLISECONDS)), [runId]);
  const [error, setError] = useState<unknown>(null);

  useEffect(() => {
    const aborted = new AbortController();
    let unsubscribe = () => {};
    let retry: number | undefined;
    const fetchMetrics = async (): Promise<number> => {
      // A point that arrives between the two requests is in the second response or repeated as a frame: use the smaller seq.
      const steps = await queries.runMetrics(runId, { axis: "step", max_points: MAX_POINTS }, aborted.signal);
      const times = await queries.runMetrics(runId, { axis: "time", max_points: MAX_POINTS }, aborted.signal);
      metrics.replace([...steps.series, ...times.series]);
      setError(null);
      return Math.min(steps.seq, times.seq);
    };
    /** Retry until the fetch succeeds, so that the page gets its stream after an outage of the control plane. */
    const fetchThen = (then: (seq: number) => void) => {
      fetchMetrics().then(then, (failure: unknown) => {
        if (aborted.signal.aborted) return;
        setError(failure);
        if (failure instanceof Problem && failure.status >= 400 && failure.status < 500) return;
        retry = window.setTimeout(() => fetchThen(then), 3_000);
      });
    };
    fetchThen((seq) => {
      unsubscribe = stream.subscribe(`run:${runId}`, seq, {
        onFrame: (frame) => applyFrame(client, runId, metrics, frame),
        onGap: (resumeAfter) => {
          void client.invalidateQueries({ queryKey: ["run", runId] });
          fetchThen(resumeAfter);
        },
      });
    });
    return () => {
      aborted.abort();
      window.clearTimeout(retry);
      unsubscribe();
    };
  }, [client, metrics, runId]);

  return { metrics, error };
}

/** Re-render the caller when points are added. */
export function useMetricsVersion(metrics: MetricsStore): number {
  return useSyncExternalStore(metrics.subscribe, metrics.getVersion);
}

function applyFrame(client: QueryClient, runId: string, metrics: MetricsStore, frame: Frame): void {
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
      client.setQueryData(queries.runState(runId, name).queryKey, () => ({ name, at, value }));
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
      void client.invalidateQueries({ queryKey: key("trajectories"), refetchType: "none" }); // the tab shows new ones without moving what somebody reads
      break;
    default:
      break; // ignore unknown frame types
  }
}
