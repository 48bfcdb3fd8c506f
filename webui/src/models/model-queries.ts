import { get } from "../api/http.ts";
import { pages } from "../api/queries.ts";

/** All base models, page by page. What invalidates `queries.models` invalidates these too. */
export const modelPages = pages(["models", "pages"], (cursor, signal) => get("/api/v1/models", { query: { cursor, limit: 100 } }, signal));
