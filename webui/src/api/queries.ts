import { queryOptions, infiniteQueryOptions } from "@tanstack/react-query";

import { get, type Query } from "./http.ts";
import type * as api from "./types.ts";

/** One place for keys and addresses: what a frame of the stream changes is found here by its key. */

export const me = queryOptions({
  queryKey: ["me"],
  queryFn: ({ signal }) => get<api.Me>("/me", {}, signal),
  retry: false,
  staleTime: 60_000,
});

function pages<T>(key: readonly unknown[], path: string, query: Query = {}) {
  return infiniteQueryOptions({
    queryKey: [...key, query],
    queryFn: ({ pageParam, signal }) => get<api.Page<T>>(path, { ...query, cursor: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => (last.has_more ? last.next_cursor : null),
  });
}

export const runs = (filter: { status?: string; kind?: string; name?: string }) => pages<api.Run>(["runs"], "/runs", { ...filter, limit: 50 });

export const run = (id: string) => queryOptions({ queryKey: ["run", id], queryFn: ({ signal }) => get<api.Run>(`/runs/${id}`, {}, signal) });

export const runEvents = (id: string) => pages<api.RunEvent>(["run", id, "events"], `/runs/${id}/events`, { limit: 100 });

export const runAttempts = (id: string) =>
  queryOptions({ queryKey: ["run", id, "attempts"], queryFn: ({ signal }) => get<api.Page<api.Attempt>>(`/runs/${id}/attempts`, {}, signal) });

export const runJobs = (id: string) =>
  queryOptions({ queryKey: ["run", id, "jobs"], queryFn: ({ signal }) => get<api.Page<api.Job>>(`/runs/${id}/jobs`, { limit: 200 }, signal) });

export const runMetrics = (id: string, query: Query = {}, signal?: AbortSignal) =>
  get<{ series: api.Series[]; seq: number }>(`/runs/${id}/metrics`, query, signal);

export const metricCatalogue = queryOptions({
  queryKey: ["metric-catalogue"],
  queryFn: ({ signal }) => get<{ data: api.MetricDescription[] }>("/metric-catalogue", {}, signal),
  staleTime: Infinity,
});

export const runHistograms = (id: string, name: string) =>
  queryOptions({
    queryKey: ["run", id, "histograms", name],
    queryFn: ({ signal }) => get<{ data: api.Histogram[] }>(`/runs/${id}/histograms`, { name, limit: 2000 }, signal),
  });

export const runDocument = (id: string, name: string) =>
  queryOptions({
    queryKey: ["run", id, "documents", name],
    queryFn: ({ signal }) => get<{ name: string; at: number; value: Record<string, unknown> }>(`/runs/${id}/documents/${name}`, {}, signal),
    retry: false,
  });

export const runTrajectories = (id: string) => pages<api.Trajectory>(["run", id, "trajectories"], `/runs/${id}/trajectories`, { limit: 20 });

export const runLogFiles = (id: string) =>
  queryOptions({ queryKey: ["run", id, "logs"], queryFn: ({ signal }) => get<{ data: api.LogFile[] }>(`/runs/${id}/logs`, {}, signal) });

export const checkpoints = (runId: string) =>
  queryOptions({ queryKey: ["run", runId, "checkpoints"], queryFn: ({ signal }) => get<api.Page<api.Checkpoint>>("/checkpoints", { run: runId }, signal) });

export const allCheckpoints = queryOptions({
  queryKey: ["checkpoints"],
  queryFn: ({ signal }) => get<api.Page<api.Checkpoint>>("/checkpoints", { limit: 200 }, signal),
});

export const datasets = queryOptions({
  queryKey: ["datasets"],
  queryFn: ({ signal }) => get<api.Page<api.Dataset>>("/datasets", { limit: 200 }, signal),
});

export const dataset = (id: string) => queryOptions({ queryKey: ["datasets", id], queryFn: ({ signal }) => get<api.Dataset>(`/datasets/${id}`, {}, signal) });

export const datasetRows = (versionId: string) => pages<Record<string, unknown>>(["dataset-versions", versionId, "rows"], `/dataset-versions/${versionId}/rows`, { limit: 20 });

export const models = queryOptions({
  queryKey: ["models"],
  queryFn: ({ signal }) => get<api.Page<api.BaseModel>>("/models", { limit: 200 }, signal),
});

export const presets = queryOptions({
  queryKey: ["presets"],
  queryFn: ({ signal }) => get<{ data: api.Preset[] } | api.Preset[]>("/presets", {}, signal),
  select: (reply) => (Array.isArray(reply) ? reply : reply.data),
  staleTime: 60_000,
});

export const pool = queryOptions({ queryKey: ["pool"], queryFn: ({ signal }) => get<api.Pool>("/pool", {}, signal), refetchInterval: 10_000 });

export const tokens = queryOptions({
  queryKey: ["tokens"],
  queryFn: ({ signal }) => get<api.Page<api.Token>>("/tokens", { limit: 200 }, signal),
});
