import { queryOptions } from "@tanstack/react-query";

import type { CheckpointListQuery } from "../checkpoints/checkpoint-list-view.ts";
import { get, getText, post } from "./http.ts";

/** Query keys of checkpoints, their aliases, gates and retention. What changes one of them invalidates `["checkpoints"]`. */

export const CHECKPOINTS = ["checkpoints"] as const;

export const CHECKPOINTS_PER_PAGE = 50;

export const checkpointPage = (query: CheckpointListQuery) =>
  queryOptions({
    queryKey: [...CHECKPOINTS, "page", query],
    queryFn: ({ signal }) => get("/api/v1/checkpoints", { query: { ...query, limit: CHECKPOINTS_PER_PAGE } }, signal),
  });

export const checkpoint = (id: string) =>
  queryOptions({ queryKey: [...CHECKPOINTS, "one", id], queryFn: ({ signal }) => get("/api/v1/checkpoints/{checkpoint_id}", { path: { checkpoint_id: id } }, signal) });

export const checkpointFiles = (id: string) =>
  queryOptions({
    queryKey: [...CHECKPOINTS, "files", id],
    queryFn: ({ signal }) => get("/api/v1/checkpoints/{checkpoint_id}/files", { path: { checkpoint_id: id } }, signal),
    staleTime: Infinity, // a stored checkpoint never changes
  });

export const checkpointLineage = (id: string) =>
  queryOptions({ queryKey: [...CHECKPOINTS, "lineage", id], queryFn: ({ signal }) => get("/api/v1/checkpoints/{checkpoint_id}/lineage", { path: { checkpoint_id: id } }, signal) });

export const modelCard = (id: string) =>
  queryOptions({ queryKey: [...CHECKPOINTS, "card", id], queryFn: ({ signal }) => getText("/api/v1/checkpoints/{checkpoint_id}/card", { path: { checkpoint_id: id } }, signal) });

export const checkpointAliases = queryOptions({
  queryKey: [...CHECKPOINTS, "aliases"],
  queryFn: ({ signal }) => get("/api/v1/checkpoint-aliases", { query: { limit: 200 } }, signal),
});

export const checkpointGates = queryOptions({
  queryKey: [...CHECKPOINTS, "gates"],
  queryFn: ({ signal }) => get("/api/v1/checkpoint-gates", { query: { limit: 200 } }, signal),
});

/** What the gate of an alias says about a checkpoint, given by id, alias or run@step. */
export const gateResult = (alias: string, reference: string) =>
  queryOptions({
    queryKey: [...CHECKPOINTS, "gate-result", alias, reference],
    queryFn: ({ signal }) => get("/api/v1/checkpoint-gates/{alias}/result", { path: { alias }, query: { checkpoint: reference } }, signal),
    refetchInterval: (query) => (query.state.data?.status === "pending" ? 5_000 : false),
  });

export const retention = queryOptions({
  queryKey: [...CHECKPOINTS, "retention"],
  queryFn: ({ signal }) => get("/api/v1/checkpoint-retention", {}, signal),
});

/** What the project's own policy would delete now. */
export const retentionPlan = queryOptions({
  queryKey: [...CHECKPOINTS, "retention", "plan"],
  queryFn: () => post("/api/v1/checkpoint-retention/plan"),
});
