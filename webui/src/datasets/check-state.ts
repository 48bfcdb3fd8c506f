import type { DatasetValidation } from "../api/schema.d.ts";
import { grouped } from "../common/format.ts";

/** How far the check of an upload has come, in a few words. */
export function checkState(found: DatasetValidation | null): string {
  if (found === null) return "Checking the rows";
  if (found.state === "QUEUED") return "The check waits for its turn";
  if (found.rows_seen > 0) return `${grouped(found.rows_seen)} rows checked`;
  return `Reading the file: ${Math.floor((100 * found.bytes_seen) / Math.max(1, found.bytes))} %`;
}

/** What one should know of stored rows whose prompts have more than one answer; "" when there are none. */
export function conflictNote(found: DatasetValidation | null): string {
  if (found === null || found.conflicts === 0) return "";
  const [first] = found.first_conflicts;
  return `; ${grouped(found.conflicts)} of them have the prompt of an earlier row and another answer${first ? ` (${first.row} differs from ${first.earlier})` : ""}`;
}
