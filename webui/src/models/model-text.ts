import type { Model, ModelImport } from "../api/schema.d.ts";
import { bytes } from "../common/format.ts";

/** How far an import is, in words. */
export function importText({ state, bytes_done, bytes_total, message }: Pick<ModelImport, "state" | "bytes_done" | "bytes_total" | "message">): string {
  switch (state) {
    case "QUEUED": return "Waits for a free node.";
    case "RUNNING": return bytes_total === 0 ? "The node lists the files." : `${bytes(bytes_done)} of ${bytes(bytes_total)}`;
    case "CHECKING": return "Downloaded; the files are checked.";
    case "DONE": return "Registered.";
    default: return message;
  }
}

/** From 0 to 100; null before the size is known and after the end. */
export function importPercent({ state, bytes_done, bytes_total }: Pick<ModelImport, "state" | "bytes_done" | "bytes_total">): number | null {
  if (state === "CHECKING") return 100;
  return state === "RUNNING" && bytes_total > 0 ? (100 * bytes_done) / bytes_total : null;
}

export const isUnderWay = ({ state }: Pick<ModelImport, "state">): boolean => state === "QUEUED" || state === "RUNNING" || state === "CHECKING";

/** Where a model comes from, with the commit of a hub. */
export function sourceText({ source, origin, path }: Pick<Model, "source" | "origin" | "path">): string {
  return source === "hub" ? origin : source === "path" ? path : source;
}

/** The source for a table: of a commit only its first 12 digits. */
export function shortSource(model: Parameters<typeof sourceText>[0]): string {
  return sourceText(model).replace(/@([0-9a-f]{12})[0-9a-f]{28}$/, "@$1");
}

/** Why a model cannot be deleted; null if it can be tried. */
export function keepReason({ state }: Pick<Model, "state">): string | null {
  return state === "READY" ? "A model that is ready stays: runs and checkpoints name it." : null;
}
