import type { DatasetValidation } from "../api/schema.d.ts";
import { grouped } from "../common/format.ts";

/** Progress of the validation of an upload, as a short label. */
export function validationProgress(validation: DatasetValidation | null): string {
  if (validation === null) return "Validating rows";
  if (validation.state === "QUEUED") return "Waiting in the validation queue";
  if (validation.rows_seen > 0) return `${grouped(validation.rows_seen)} rows validated`;
  return `Reading file: ${Math.floor((100 * validation.bytes_seen) / Math.max(1, validation.bytes))} %`;
}

/** A note about rows with the same prompt and different answers. Empty if there are none. */
export function conflictNote(validation: DatasetValidation | null): string {
  if (validation === null || validation.conflicts === 0) return "";
  const [first] = validation.first_conflicts;
  return `; ${grouped(validation.conflicts)} of them repeat the prompt of an earlier row with another answer${first ? ` (${first.row} differs from ${first.earlier})` : ""}`;
}
