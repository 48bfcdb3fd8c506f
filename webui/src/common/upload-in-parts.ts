import { post, putPart } from "../api/http.ts";
import type { Upload } from "../api/schema.d.ts";
import { fingerprintOf, missingParts } from "./parts.ts";
import { sha256 } from "./sha256.ts";
import { forget, remember } from "./unfinished-upload.ts";

/** Upload a file part by part. Uploading the same file again after an interruption or a reload resumes. */
export async function uploadInParts(file: File, purpose: "dataset" | "model", onProgress: (sentBytes: number) => void): Promise<Upload> {
  const session = await post("/api/v1/upload-sessions", { body: { filename: file.name, purpose, bytes: file.size, fingerprint: fingerprintOf(file) } });
  if (session.upload !== null) return session.upload;
  remember(localStorage, purpose, { session: session.id, filename: file.name, bytes: file.size });
  const missing = missingParts(session);
  let sent = session.bytes - missing.reduce((sum, part) => sum + part.end - part.begin, 0);
  onProgress(sent);
  for (const part of missing) {
    const data = file.slice(part.begin, part.end);
    await putPart(session.id, part.number, data, await sha256(await data.arrayBuffer()), (bytes) => onProgress(sent + bytes));
    sent += part.end - part.begin;
    onProgress(sent);
  }
  const upload = await post("/api/v1/upload-sessions/{session_id}/complete", { path: { session_id: session.id } });
  forget(localStorage, purpose);
  return upload;
}
