import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";

import type { RunListQuery } from "../runs/run-list-view.ts";
import type { TrajectoryQuery } from "../runs/trajectories/trajectory-filter.ts";
import { get, getText } from "./http.ts";
import type { SourceKind, StateSnapshot } from "./schema.d.ts";

/** All query keys and API paths. Handlers of stream frames update the cache by these keys. */

type Paged = { next_cursor: string | null; has_more: boolean };

/** A list with cursor pagination. */
export function pages<T extends Paged>(queryKey: readonly unknown[], fetchPage: (cursor: string | undefined, signal: AbortSignal) => Promise<T>) {
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

/** The caller's saved views of the run list, and those that others share. */
export const savedViews = queryOptions({
  queryKey: ["saved-views"],
  queryFn: async ({ signal }) => (await get("/api/v1/saved-views", { query: { limit: 200 } }, signal)).data,
});

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

/** Some metrics of a run at the resolution of an overview. */
export const namedMetrics = (id: string, query: { axis: "step" | "time"; names: string; max_points: number }, signal: AbortSignal) =>
  get("/api/v1/runs/{run_id}/metrics", { path: { run_id: id }, query }, signal);

/** The names of the metrics that a run has reported. */
export const metricNames = (id: string) =>
  queryOptions({
    queryKey: ["run", id, "metric-names"],
    queryFn: async ({ signal }) => (await get("/api/v1/runs/{run_id}/metric-names", { path: { run_id: id } }, signal)).data.map(({ name }) => name),
  });

const DETAIL_POINTS = 4_000; // more than a chart has pixels

/** A part of a metric, in single points where the part has few enough. Attempts are joined on the step axis. */
export const metricDetail = (id: string, part: { axis: "step" | "time"; names: string; from_x: number | undefined; to_x: number | undefined }) =>
  queryOptions({
    queryKey: ["run", id, "metrics", part],
    queryFn: ({ signal }) => get("/api/v1/runs/{run_id}/metrics", { path: { run_id: id }, query: { ...part, join: part.axis === "step" ? "attempts" : undefined, max_points: DETAIL_POINTS } }, signal),
    staleTime: Infinity,
  });

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

/** Sampled trajectories. A new one marks the list as stale; the page decides when to load it. */
export const runTrajectories = (id: string, filter: TrajectoryQuery = {}, limit = 50) => ({
  ...pages(["run", id, "trajectories", filter, limit], (cursor, signal) => get("/api/v1/runs/{run_id}/trajectories", { path: { run_id: id }, query: { ...filter, cursor, limit } }, signal)),
  staleTime: Infinity,
});

export const runTrajectory = (id: string, trajectory: string) =>
  queryOptions({
    queryKey: ["run", id, "trajectory", trajectory],
    queryFn: ({ signal }) => get("/api/v1/runs/{run_id}/trajectories/{trajectory_id}", { path: { run_id: id, trajectory_id: trajectory } }, signal),
    staleTime: Infinity,
  });

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

/** The end of a log as text. */
export const runLogTail = (id: string, file: { job: string; incarnation: number; bytes: number }, bytes: number) =>
  queryOptions({
    queryKey: ["run", id, "log-tail", file.job, file.incarnation, file.bytes],
    queryFn: async ({ signal }) => {
      const query = { job: file.job, incarnation: file.incarnation, offset: Math.max(0, file.bytes - bytes), limit: bytes };
      const response = await get("/api/v1/runs/{run_id}/logs", { path: { run_id: id }, query }, signal);
      return "text" in response ? response.text : "";
    },
  });

export const logSearch = (id: string, filter: { q: string; level: string; job: string }) =>
  pages(["run", id, "log-search", filter], (cursor, signal) =>
    get("/api/v1/runs/{run_id}/logs/search", { path: { run_id: id }, query: { ...filter, level: (filter.level || undefined) as "ERROR" | undefined, cursor, limit: 200 } }, signal));

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

/** With `q` only rows that hold this text, with `split` only rows of it. */
export const datasetRows = (versionId: string, filter: { q?: string; split?: string } = {}) =>
  pages(["dataset-versions", versionId, "rows", filter], (cursor, signal) =>
    get("/api/v1/dataset-versions/{version_id}/rows", { path: { version_id: versionId }, query: { ...filter, cursor, limit: 20 } }, signal));

/** What a whole version says about itself or beside another never changes; the server reads all rows, so it is asked once. */
export const datasetLeaks = (versionId: string) =>
  queryOptions({
    queryKey: ["dataset-versions", versionId, "leakage"],
    queryFn: async ({ signal }) => (await get("/api/v1/dataset-versions/{version_id}/leakage", { path: { version_id: versionId } }, signal)).leaks,
    staleTime: Infinity, retry: false,
  });

export const datasetDiff = (versionId: string, from: string) =>
  queryOptions({
    queryKey: ["dataset-versions", versionId, "diff", from],
    queryFn: ({ signal }) => get("/api/v1/dataset-versions/{version_id}/diff", { path: { version_id: versionId }, query: { from } }, signal),
    staleTime: Infinity, retry: false,
  });

/** Token counts of a version, newest first. `over`: also the share of rows that are longer. */
export const datasetStatistics = (versionId: string, over?: number) =>
  queryOptions({
    queryKey: ["dataset-versions", versionId, "statistics", over ?? null],
    queryFn: async ({ signal }) => (await get("/api/v1/dataset-versions/{version_id}/statistics", { path: { version_id: versionId }, query: { over, limit: 50 } }, signal)).data,
  });

export const datasetAliases = (datasetId: string) =>
  queryOptions({
    queryKey: ["datasets", datasetId, "aliases"],
    queryFn: async ({ signal }) => (await get("/api/v1/datasets/{dataset_id}/aliases", { path: { dataset_id: datasetId }, query: { limit: 200 } }, signal)).data,
  });

/** Which parts of an upload have arrived. */
export const uploadSession = (id: string) =>
  queryOptions({
    queryKey: ["upload-sessions", id],
    queryFn: ({ signal }) => get("/api/v1/upload-sessions/{session_id}", { path: { session_id: id } }, signal),
    retry: false,
  });

export const modelImports = pages(["model-imports"], (cursor, signal) => get("/api/v1/model-imports", { query: { cursor, limit: 20 } }, signal));

export const models = queryOptions({
  queryKey: ["models"],
  queryFn: ({ signal }) => get("/api/v1/models", { query: { limit: 200 } }, signal),
});

/** Without archived ones, so what a form offers can be chosen. `archived`: only those. */
export const functions = (kind?: SourceKind, archived?: "only") =>
  pages(["functions", kind ?? "", archived ?? ""], (cursor, signal) => get("/api/v1/functions", { query: { kind, archived, cursor, limit: 100 } }, signal));

export const functionById = (id: string) =>
  queryOptions({ queryKey: ["functions", "one", id], queryFn: ({ signal }) => get("/api/v1/functions/{function_id}", { path: { function_id: id } }, signal) });

/** A version never changes, so its source is fetched once. */
export const functionSource = (versionId: string) =>
  queryOptions({
    queryKey: ["function-versions", versionId, "source"],
    queryFn: ({ signal }) => getText("/api/v1/function-versions/{function_version_id}/source", { path: { function_version_id: versionId } }, signal),
    staleTime: Infinity,
  });

/** Newest first. `reward`: a built-in reward, or a version such as close@2. */
export const rewardTests = (reward?: string) =>
  pages(["reward-tests", reward ?? ""], (cursor, signal) => get("/api/v1/reward-tests", { query: { reward, cursor, limit: 25 } }, signal));

export const rewardTest = (id: string) =>
  queryOptions({ queryKey: ["reward-tests", "one", id], queryFn: ({ signal }) => get("/api/v1/reward-tests/{reward_test_id}", { path: { reward_test_id: id } }, signal) });

export const sweeps = pages(["sweeps"], (cursor, signal) => get("/api/v1/sweeps", { query: { cursor, limit: 50 } }, signal));

export const sweep = (id: string) =>
  queryOptions({ queryKey: ["sweeps", "one", id], queryFn: ({ signal }) => get("/api/v1/sweeps/{sweep_id}", { path: { sweep_id: id } }, signal) });

/** All trials: a sweep has at most 200. */
export const trials = (sweepId: string) =>
  queryOptions({
    queryKey: ["sweeps", "one", sweepId, "trials"],
    queryFn: async ({ signal }) => (await get("/api/v1/sweeps/{sweep_id}/trials", { path: { sweep_id: sweepId }, query: { limit: 200 } }, signal)).data,
  });

export const templates = queryOptions({
  queryKey: ["run-templates"],
  queryFn: async ({ signal }) => (await get("/api/v1/run-templates", { query: { limit: 200 } }, signal)).data,
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

/** The reservations of a pool that have not ended. */
export const reservations = (pool: string) =>
  queryOptions({
    queryKey: ["pool", pool, "reservations"],
    queryFn: async ({ signal }) => (await get("/api/v1/pools/{pool_name}/reservations", { path: { pool_name: pool } }, signal)).data,
    refetchInterval: 60_000,
  });

/** The maintenance windows of a pool that have not ended. */
export const maintenance = (pool: string) =>
  queryOptions({
    queryKey: ["pool", pool, "maintenance"],
    queryFn: async ({ signal }) => (await get("/api/v1/pools/{pool_name}/maintenance", { path: { pool_name: pool } }, signal)).data,
    refetchInterval: 60_000,
  });

/** The teams of a pool with their quotas. Only for admins of the pool. */
export const poolTeams = (name: string) =>
  queryOptions({
    queryKey: ["pool", name, "teams"],
    queryFn: async ({ signal }) => (await get("/api/v1/pools/{pool_name}/teams", { path: { pool_name: name } }, signal)).data,
  });
