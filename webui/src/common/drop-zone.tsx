import { Progress } from "@mantine/core";
import { IconFileCheck, IconUpload } from "@tabler/icons-react";
import { useMutation } from "@tanstack/react-query";
import { useRef, useState } from "react";

import type { Upload } from "../api/schema.d.ts";
import classes from "./drop-zone.module.css";
import { bytes } from "./format.ts";
import { ProblemNotice } from "./notices.tsx";
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
