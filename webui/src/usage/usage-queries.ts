import { queryOptions } from "@tanstack/react-query";

import { get } from "../api/http.ts";

type Window = { since: string; device?: "cuda" | "cpu" };

/** What slots were held for, as rows. */
export const usage = (query: Window & { by: "project" | "team" | "run" }) =>
  queryOptions({ queryKey: ["usage", query], queryFn: ({ signal }) => get("/api/v1/pool/usage", { query }, signal) });

/** The same over time. */
export const usageSeries = (query: Window & { by: "outcome" | "phase" | "team" | "project"; bucket: "hour" | "day" }) =>
  queryOptions({ queryKey: ["usage", "series", query], queryFn: ({ signal }) => get("/api/v1/pool/usage/series", { query }, signal) });
