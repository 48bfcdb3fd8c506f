import { Button, Progress } from "@mantine/core";
import { IconFileCheck, IconUpload } from "@tabler/icons-react";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import { remove } from "../api/http.ts";
import { Problem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import type { Upload } from "../api/schema.d.ts";
import classes from "./drop-zone.module.css";
import { bytes } from "./format.ts";
import { ProblemNotice } from "./notices.tsx";
import { forget, recall, receivedBytes } from "./unfinished-upload.ts";
import { uploadInParts } from "./upload-in-parts.ts";

type Props = { purpose: "dataset" | "model"; accept: string; hint: string; onUploaded: (upload: Upload) => void };

/** Upload one dropped or chosen file and show the progress. Dropping the same file again resumes the upload. */
export function DropZone({ purpose, accept, hint, onUploaded }: Props) {
  const input = useRef<HTMLInputElement>(null);
  const [isOver, setIsOver] = useState(false);
  const [sent, setSent] = useState(0);
  const [file, setFile] = useState<File | null>(null);
  const upload = useMutation({
    mutationFn: (chosen: File) => uploadInParts(chosen, purpose, setSent),
    onSuccess: onUploaded,
  });
  const uploadFirst = (files: FileList | null) => {
    const chosen = files?.[0];
    if (chosen === undefined) return;
    setFile(chosen);
    setSent(0);
    upload.mutate(chosen);
  };
  return (
    <div>
      {file === null && <Resume purpose={purpose} />}
      <ProblemNotice error={upload.error} retry={() => file !== null && upload.mutate(file)} />
      <button
        type="button"
        className={classes.zone}
        data-over={isOver}
        onClick={() => input.current?.click()}
        onDragOver={(event) => { event.preventDefault(); setIsOver(true); }}
        onDragLeave={() => setIsOver(false)}
        onDrop={(event) => { event.preventDefault(); setIsOver(false); uploadFirst(event.dataTransfer.files); }}
      >
        {upload.isSuccess ? <IconFileCheck size={24} stroke={1.5} aria-hidden /> : <IconUpload size={24} stroke={1.5} aria-hidden />}
        {file === null ? <strong>Drop a file here or click to choose one</strong> : <strong>{file.name}</strong>}
        <span>{file === null ? hint : upload.isSuccess ? `${bytes(file.size)} uploaded. Drop another file to replace it.` : `${bytes(sent)} of ${bytes(file.size)}`}</span>
        {upload.isPending && file !== null && <Progress w="60%" mt={6} value={(100 * sent) / Math.max(1, file.size)} aria-label="Uploaded" />}
      </button>
      <input ref={input} type="file" accept={accept} className="visually-hidden" tabIndex={-1} aria-label="File" data-testid="file" onChange={(event) => uploadFirst(event.currentTarget.files)} />
    </div>
  );
}

/** The upload that a reload or an outage interrupted, while the server still has its parts. */
function Resume({ purpose }: { purpose: Props["purpose"] }) {
  const [unfinished, setUnfinished] = useState(() => recall(localStorage, purpose));
  const session = useQuery({ ...queries.uploadSession(unfinished?.session ?? ""), enabled: unfinished !== null });
  const isGone = (session.error instanceof Problem && session.error.status === 404) || session.data?.upload != null;
  useEffect(() => { if (isGone) forget(localStorage, purpose); }, [isGone, purpose]);
  const discard = useMutation({
    mutationFn: () => remove("/api/v1/upload-sessions/{session_id}", { path: { session_id: unfinished?.session ?? "" } }),
    onSuccess: () => { forget(localStorage, purpose); setUnfinished(null); },
  });
  if (unfinished === null || session.data === undefined || isGone) return null;
  const arrived = receivedBytes(session.data);
  return (
    <div className={classes.resume} role="status" data-testid="resume-upload">
      <div><b>{unfinished.filename}</b> is not complete: {bytes(arrived)} of {bytes(unfinished.bytes)} arrived. Choose the same file to resume.</div>
      <Progress w={160} value={(100 * arrived) / Math.max(1, unfinished.bytes)} aria-label="Arrived before" />
      <Button variant="subtle" color="gray" loading={discard.isPending} title="Deletes the parts that arrived" onClick={() => discard.mutate()}>Discard</Button>
      <ProblemNotice error={discard.error} />
    </div>
  );
}
