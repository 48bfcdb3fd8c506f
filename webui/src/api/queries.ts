import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";

import type { RunListQuery } from "../runs/run-list-view.ts";
import { get } from "./http.ts";
import type { StateSnapshot } from "./schema.d.ts";

/** All query keys and API paths. Handlers of stream frames update the cache by these keys. */

type Paged = { next_cursor: string | null; has_more: boolean };

/** A list with cursor pagination. */
function pages<T extends Paged>(queryKey: readonly unknown[], fetchPage: (cursor: string | undefined, signal: AbortSignal) => Promise<T>) {
  return infiniteQueryOptions({
    queryKey,
    queryFn: ({ pageParam, signal }) => fetchPage(pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last: T) => (last.has_more ? (last.next_cursor ?? undefined) : undefined),
  });
}

export const me = queryOptions({
  queryKey: ["me"],
  queryFn: ({ signal }) => get("/api/v1/me", {}, signal),
  retry: false,
  staleTime: 60_000,
});

export const projects = queryOptions({
  queryKey: ["projects"],
  queryFn: ({ signal }) => get("/api/v1/projects", { query: { limit: 200 } }, signal),
  staleTime: 60_000,
});

/** Rows of a page of the run list: as many as one request for their reward curves may name. */
const RUNS_PER_PAGE = 100;

export const runs = (filter: RunListQuery, limit = RUNS_PER_PAGE) =>
  pages(["runs", filter, limit], (cursor, signal) => get("/api/v1/runs", { query: { ...filter, cursor, limit } }, signal));

/** Reward curves of at most 100 runs. */
export const sparklines = (ids: string[]) =>
  queryOptions({
    queryKey: ["sparklines", ids.join()],
    queryFn: async ({ signal }) => (await get("/api/v1/runs/sparklines", { query: { ids: ids.join() } }, signal)).data,
    staleTime: 20_000,
  });

export const run = (id: string) =>
  queryOptions({ queryKey: ["run", id], queryFn: ({ signal }) => get("/api/v1/runs/{run_id}", { path: { run_id: id } }, signal) });

export const runEvents = (id: string) =>
  pages(["run", id, "events"], (cursor, signal) => get("/api/v1/runs/{run_id}/events", { path: { run_id: id }, query: { cursor, limit: 100 } }, signal));

export const runAlerts = (id: string) =>
  queryOptions({
    queryKey: ["run", id, "alerts"],
    queryFn: ({ signal }) => get("/api/v1/runs/{run_id}/alerts", { path: { run_id: id }, query: { open: true, limit: 50 } }, signal),
  });

export const runJobs = (id: string) =>
  queryOptions({
    queryKey: ["run", id, "jobs"],
    queryFn: ({ signal }) => get("/api/v1/runs/{run_id}/jobs", { path: { run_id: id } }, signal),
  });

export const runMetrics = (id: string, query: { axis: "step" | "time"; max_points: number }, signal: AbortSignal) =>
  get("/api/v1/runs/{run_id}/metrics", { path: { run_id: id }, query }, signal);

export const metricDefinitions = queryOptions({
  queryKey: ["metrics/definitions"],
  queryFn: ({ signal }) => get("/api/v1/metrics/definitions", {}, signal),
  staleTime: Infinity,
});

export const runHistograms = (id: string, name: string) =>
  queryOptions({
    queryKey: ["run", id, "histograms", name],
    queryFn: ({ signal }) => get("/api/v1/runs/{run_id}/histograms", { path: { run_id: id }, query: { name, limit: 2000 } }, signal),
  });

export const runState = (id: string, name: string) =>
  queryOptions({
    queryKey: ["run", id, "state", name],
    // Read from the list, because a run without this snapshot yet is not an error.
    queryFn: async ({ signal }): Promise<StateSnapshot | null> => (await get("/api/v1/runs/{run_id}/state", { path: { run_id: id }, query: { name } }, signal)).data[0] ?? null,
  });

/** With a group: only its trajectories. */
export const runTrajectories = (id: string, group?: string) =>
  pages(["run", id, "trajectories", group ?? ""], (cursor, signal) => get("/api/v1/runs/{run_id}/trajectories", { path: { run_id: id }, query: { cursor, limit: 32, group } }, signal));

export const runTimeline = (id: string, query: { from?: number; to?: number; limit?: number }) =>
  queryOptions({
    queryKey: ["run", id, "timeline", query],
    queryFn: ({ signal }) => get("/api/v1/runs/{run_id}/timeline", { path: { run_id: id }, query }, signal),
  });

export const runLogFiles = (id: string) =>
  queryOptions({
    queryKey: ["run", id, "logs"],
    queryFn: async ({ signal }) => {
      const response = await get("/api/v1/runs/{run_id}/logs", { path: { run_id: id } }, signal);
      return "data" in response ? response.data : [];
    },
  });

export const checkpoints = (runId: string) =>
  queryOptions({
    queryKey: ["run", runId, "checkpoints"],
    queryFn: ({ signal }) => get("/api/v1/checkpoints", { query: { run: runId, limit: 200 } }, signal),
  });

export const allCheckpoints = queryOptions({
  queryKey: ["checkpoints"],
  queryFn: ({ signal }) => get("/api/v1/checkpoints", { query: { limit: 200 } }, signal),
});

export const datasets = queryOptions({
  queryKey: ["datasets"],
  queryFn: ({ signal }) => get("/api/v1/datasets", { query: { limit: 200 } }, signal),
});

export const dataset = (id: string) =>
  queryOptions({ queryKey: ["datasets", id], queryFn: ({ signal }) => get("/api/v1/datasets/{dataset_id}", { path: { dataset_id: id } }, signal) });

export const datasetRows = (versionId: string) =>
  pages(["dataset-versions", versionId, "rows"], (cursor, signal) =>
    get("/api/v1/dataset-versions/{version_id}/rows", { path: { version_id: versionId }, query: { cursor, limit: 20 } }, signal));

export const models = queryOptions({
  queryKey: ["models"],
  queryFn: ({ signal }) => get("/api/v1/models", { query: { limit: 200 } }, signal),
});

export const presets = queryOptions({
  queryKey: ["presets"],
  queryFn: async ({ signal }) => (await get("/api/v1/presets", {}, signal)).data,
  staleTime: 60_000,
});

/** The named pool. Without a name: the default pool, or the first one that the team may use. */
export const pool = (name?: string) =>
  queryOptions({
    queryKey: ["pool", name ?? ""],
    queryFn: ({ signal }) => get("/api/v1/pool", { query: { pool: name } }, signal),
    refetchInterval: 10_000,
  });

/** The teams of a pool with their quotas. Only for admins of the pool. */
export const poolTeams = (name: string) =>
  queryOptions({
    queryKey: ["pool", name, "teams"],
    queryFn: async ({ signal }) => (await get("/api/v1/pools/{pool_name}/teams", { path: { pool_name: name } }, signal)).data,
  });

/** The projects of a team with their quotas in a pool. Only for admins of the pool. */
export const projectQuotas = (pool: string, team: string) =>
  queryOptions({
    queryKey: ["pool", pool, "teams", team, "projects"],
    queryFn: async ({ signal }) =>
      (await get("/api/v1/pools/{pool_name}/teams/{team_id}/projects", { path: { pool_name: pool, team_id: team } }, signal)).data,
  });

export const tokens = queryOptions({
  queryKey: ["tokens"],
  queryFn: ({ signal }) => get("/api/v1/tokens", { query: { limit: 200 } }, signal),
});
