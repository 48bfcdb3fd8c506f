import type { components } from "../api/schema.d.ts";

/** `Function` is a name of the language. */
export type FunctionData = components["schemas"]["Function"];
export type { FunctionVersion, SourceKind } from "../api/schema.d.ts";
