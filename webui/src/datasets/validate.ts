import { get, post } from "../api/http.ts";
import type { MappingRequest as Mapping, DatasetValidation } from "../api/schema.d.ts";

const LOOK_EVERY_MS = 400;

/** Has an uploaded file checked in the sandbox, whole or its first rows, and waits for what is said about it. */
export async function validate(
  uploadId: string, mapping: Mapping | null, stopAfter: number | null,
  { signal, onProgress }: { signal?: AbortSignal; onProgress?: (found: DatasetValidation) => void } = {},
): Promise<DatasetValidation> {
  let found = await post("/api/v1/dataset-validations", { body: { upload_id: uploadId, mapping, format: "", config: "", stop_after: stopAfter } });
  while (found.state === "QUEUED" || found.state === "RUNNING") {
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    found = await get("/api/v1/dataset-validations/{validation_id}", { path: { validation_id: found.id } }, signal);
    onProgress?.(found);
  }
  if (found.state === "FAILED") throw new Error(`The rows could not be checked: ${found.message}`);
  return found;
}
