import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useLocation } from "react-router";

import * as queries from "../api/queries.ts";
import { COMPARE, START, visiblePages, visibleParts } from "../app/pages.ts";
import { readOnlyReason } from "../common/permission.ts";
import { comparePath } from "../compare/compare-view.ts";
import { checkpointEntries, datasetEntries, MAX_PER_GROUP, pageEntries, runEntries, templateEntries, viewEntries, type EntryGroup } from "./entries.ts";

const DEBOUNCE_MILLISECONDS = 150;
const UPLOAD = { to: "/datasets/new", label: "Upload a dataset" };

/** The results of a query, by group. The server searches the runs; an empty query gives the pages and the newest runs. */
export function useEntries(typed: string): { groups: EntryGroup[]; isSearching: boolean; error: Error | null } {
  const query = typed.trim();
  const [settled] = useDebouncedValue(query, DEBOUNCE_MILLISECONDS);
  const { data: me } = useQuery(queries.me);
  const mayStart = readOnlyReason(me?.role) === null;
  const compare = { ...COMPARE, to: comparePath(runOf(useLocation().pathname)) };
  const pages = [...visiblePages(me), compare, ...(query === "" ? [] : visibleParts(me))];
  const runs = useInfiniteQuery({ ...queries.runs(runFilter(settled), MAX_PER_GROUP), placeholderData: keepPreviousData });
  const datasets = useQuery({ ...queries.datasets, enabled: query !== "" });
  const checkpoints = useQuery({ ...queries.allCheckpoints, enabled: query !== "" });
  const views = useQuery({ ...queries.savedViews, enabled: query !== "" });
  const templates = useQuery({ ...queries.templates, enabled: query !== "" && mayStart });
  const isEmpty = query === "";
  const groups = [
    { name: "Pages", entries: pageEntries(mayStart ? [...pages, START, UPLOAD] : pages, query) },
    { name: isEmpty ? "Newest runs" : "Runs", entries: runEntries(runs.data?.pages[0]?.data ?? []) },
    { name: "Saved views", entries: isEmpty ? [] : viewEntries(views.data ?? [], query) },
    { name: "Templates", entries: isEmpty || !mayStart ? [] : templateEntries(templates.data ?? [], query) },
    { name: "Datasets", entries: isEmpty ? [] : datasetEntries(datasets.data?.data ?? [], query) },
    { name: "Checkpoints", entries: isEmpty ? [] : checkpointEntries(checkpoints.data?.data ?? [], query) },
  ];
  return {
    groups: groups.filter(({ entries }) => entries.length > 0),
    isSearching: settled !== query || [runs, views, templates, datasets, checkpoints].some(({ isFetching }) => isFetching),
    error: runs.error ?? views.error ?? templates.error ?? datasets.error ?? checkpoints.error,
  };
}

/** The run of a run's page: comparing starts with it. */
function runOf(pathname: string): string[] {
  const [, id] = /^\/runs\/(run_\w+)$/.exec(pathname) ?? [];
  return id === undefined ? [] : [id];
}

function runFilter(query: string): { name?: string; text?: string } {
  if (query === "") return {};
  return query.startsWith("run_") ? { text: query } : { name: query };
}
