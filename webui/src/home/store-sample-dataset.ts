import { get, post } from "../api/http.ts";
import { uploadInParts } from "../common/upload-in-parts.ts";
import { validate } from "../datasets/validate.ts";
import { validationProgress } from "../datasets/validation-progress.ts";
import { asJsonLines, SAMPLE_MAPPING, SAMPLE_NAME, sampleRows } from "./sample-dataset.ts";

/** Make the sample dataset, upload it, and store it once every row is valid. */
export async function storeSampleDataset(onProgress: (label: string) => void): Promise<void> {
  onProgress("Uploading");
  // The same modification time each time, so that a second attempt resumes the first one's upload.
  const file = new File([asJsonLines(sampleRows())], `${SAMPLE_NAME}.jsonl`, { type: "application/jsonl", lastModified: 0 });
  const upload = await uploadInParts(file, "dataset", () => {});
  const checked = await validate(upload.id, SAMPLE_MAPPING, null, { onProgress: (validation) => onProgress(validationProgress(validation)) });
  if (checked.state !== "VALID") throw new Error(`The sample dataset is invalid: ${checked.message}`);
  const [existing] = (await get("/api/v1/datasets", { query: { name: SAMPLE_NAME } })).data;
  const dataset = existing ?? (await post("/api/v1/datasets", { body: { name: SAMPLE_NAME, description: "Sample: digits to add, with worked solutions" } }));
  await post("/api/v1/datasets/{dataset_id}/versions", { path: { dataset_id: dataset.id }, body: { validation_id: checked.id } });
}
