import { queryOptions } from "@tanstack/react-query";

import { get } from "./http.ts";
import { pages } from "./queries.ts";
import type { paths } from "./schema.d.ts";

/** Queries of the pages Team, Account and Admin. */

const PAGE = 100;

export const members = queryOptions({
  queryKey: ["members"],
  queryFn: async ({ signal }) => (await get("/api/v1/members", {}, signal)).data,
});

export const invitations = pages(["invitations"], (cursor, signal) => get("/api/v1/invitations", { query: { cursor, limit: PAGE } }, signal));

export const serviceAccounts = pages(["service-accounts"], (cursor, signal) => get("/api/v1/service-accounts", { query: { cursor, limit: PAGE } }, signal));

/** The caller's own live tokens of the project; with `all`, everybody's. */
export const tokens = (all = false) =>
  pages(["tokens", all ? "all" : "own"], (cursor, signal) => get("/api/v1/tokens", { query: { all: all || undefined, cursor, limit: PAGE } }, signal));

export const secrets = pages(["secrets"], (cursor, signal) => get("/api/v1/secrets", { query: { cursor, limit: PAGE } }, signal));

export const webhooks = pages(["webhooks"], (cursor, signal) => get("/api/v1/webhooks", { query: { cursor, limit: PAGE } }, signal));

export const deliveries = (webhook: string) =>
  pages(["webhooks", webhook, "deliveries"], (cursor, signal) =>
    get("/api/v1/webhooks/{webhook_id}/deliveries", { path: { webhook_id: webhook }, query: { cursor, limit: 50 } }, signal));

export type AuditFilter = Omit<NonNullable<paths["/api/v1/audit"]["get"]["parameters"]["query"]>, "cursor" | "limit">;

export const audit = (filter: AuditFilter) =>
  pages(["audit", filter], (cursor, signal) => get("/api/v1/audit", { query: { ...filter, cursor, limit: PAGE } }, signal));

export const auditChain = queryOptions({
  queryKey: ["audit", "chain"],
  queryFn: ({ signal }) => get("/api/v1/audit/chain", {}, signal),
  staleTime: 30_000,
});

export const teams = pages(["teams"], (cursor, signal) => get("/api/v1/teams", { query: { cursor, limit: 200 } }, signal));

export const pools = queryOptions({
  queryKey: ["pools"],
  queryFn: async ({ signal }) => (await get("/api/v1/pools", {}, signal)).data,
});

export const poolAdmins = (name: string) =>
  queryOptions({
    queryKey: ["pool", name, "admins"],
    queryFn: async ({ signal }) => (await get("/api/v1/pools/{pool_name}/admins", { path: { pool_name: name } }, signal)).data,
  });

export const poolPrices = (name: string) =>
  queryOptions({ queryKey: ["pool", name, "prices"], queryFn: ({ signal }) => get("/api/v1/pools/{pool_name}/prices", { path: { pool_name: name } }, signal) });

export const poolBudgets = (name: string) =>
  queryOptions({
    queryKey: ["pool", name, "budgets"],
    queryFn: async ({ signal }) => (await get("/api/v1/pools/{pool_name}/budgets", { path: { pool_name: name } }, signal)).data,
    refetchInterval: 60_000, // time passes while slots are held
  });

export const projectQuotas = (pool: string, team: string) =>
  queryOptions({
    queryKey: ["pool", pool, "teams", team],
    queryFn: async ({ signal }) =>
      (await get("/api/v1/pools/{pool_name}/teams/{team_id}/projects", { path: { pool_name: pool, team_id: team } }, signal)).data,
  });

export const health = queryOptions({
  queryKey: ["health"],
  queryFn: ({ signal }) => get("/api/v1/health", {}, signal),
  refetchInterval: 10_000,
});
