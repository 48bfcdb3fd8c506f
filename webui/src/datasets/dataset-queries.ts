import { queryOptions } from "@tanstack/react-query";

import { get } from "../api/http.ts";
import { pages } from "../api/queries.ts";

/** All datasets, page by page. What invalidates `queries.datasets` invalidates these too. */
export const datasetPages = pages(["datasets", "pages"], (cursor, signal) => get("/api/v1/datasets", { query: { cursor, limit: 100 } }, signal));

export const datasetVersion = (id: string) =>
  queryOptions({ queryKey: ["dataset-versions", id], queryFn: ({ signal }) => get("/api/v1/dataset-versions/{version_id}", { path: { version_id: id } }, signal) });
