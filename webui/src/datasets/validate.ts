import { get, post } from "../api/http.ts";
import type { MappingRequest as Mapping, DatasetValidation } from "../api/schema.d.ts";

const POLL_INTERVAL_MS = 400;

/** Validate an uploaded file in the sandbox, all of it or its first rows, and wait for the result. */
export async function validate(
  uploadId: string, mapping: Mapping | null, stopAfter: number | null,
  { signal, onProgress }: { signal?: AbortSignal; onProgress?: (validation: DatasetValidation) => void } = {},
): Promise<DatasetValidation> {
  let validation = await post("/api/v1/dataset-validations", { body: { upload_id: uploadId, mapping, format: "", config: "", stop_after: stopAfter } });
  while (validation.state === "QUEUED" || validation.state === "RUNNING") {
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL_MS));
    validation = await get("/api/v1/dataset-validations/{validation_id}", { path: { validation_id: validation.id } }, signal);
    onProgress?.(validation);
  }
  if (validation.state === "FAILED") throw new Error(`Validation failed: ${validation.message}`);
  return validation;
}
