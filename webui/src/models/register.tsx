import { Button, Group, SegmentedControl, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Upload } from "../api/schema.d.ts";
import { DropZone } from "../common/drop-zone.tsx";
import { ProblemNotice } from "../common/notices.tsx";

/** The form of a base model: an uploaded archive, an import from a hub, or a path on the nodes. */
export function Register({ onDone }: { onDone: () => void }) {
  const [source, setSource] = useState<"upload" | "hub" | "path">("upload");
  const [hubModel, setHubModel] = useState("");
  const [revision, setRevision] = useState("main");
  const [secret, setSecret] = useState("");
  const [name, setName] = useState("");
  const [path, setPath] = useState("");
  const [uploaded, setUploaded] = useState<Upload | null>(null);
  const client = useQueryClient();
  const register = useMutation({
    mutationFn: () => post("/api/v1/models", { body: source === "upload" ? { name, upload_id: uploaded?.id } : { name, path } }),
    onSuccess: (model) => {
      void client.invalidateQueries({ queryKey: queries.models.queryKey });
      notifications.show({ message: `${model.name} is being validated. Runs can use it when its state is READY.` });
      onDone();
    },
  });
  const fetchFromHub = useMutation({
    mutationFn: () => post("/api/v1/model-imports", { body: { name, model: hubModel, revision, secret } }),
    onSuccess: (made) => {
      void client.invalidateQueries({ queryKey: ["model-imports"] });
      notifications.show({ message: `${made.hub_model} is queued: the next free node downloads and checks it` });
      onDone();
    },
  });
  const isReady = name !== "" && (source === "upload" ? uploaded !== null : source === "hub" ? hubModel.includes("/") && revision !== "" : path !== "");
  return (
    <div style={{ display: "grid", gap: 12 }}>
      <ProblemNotice error={source === "hub" ? fetchFromHub.error : register.error} />
      <SegmentedControl value={source} onChange={(value) => setSource(value as typeof source)} data={[{ value: "upload", label: "Upload an archive" }, { value: "hub", label: "Import from a hub" }, { value: "path", label: "Path on a node" }]} />
      {source === "upload" ? (
        <DropZone
          purpose="model" accept=".tar,.tar.gz,.tgz,.zip" hint="tar, tar.gz or zip of a Hugging Face directory: config.json, tokenizer.json, *.safetensors"
          onUploaded={(upload) => { setUploaded(upload); setName((old) => old || upload.filename.replace(/\.(tar|gz|tgz|zip)/g, "")); }}
        />
      ) : source === "hub" ? (
        <>
          <TextInput label="Model" description="owner/name on the hub that the operator of this installation set" placeholder="acme/tiny" required value={hubModel} onChange={(event) => { const chosen = event.currentTarget.value.trim(); setHubModel(chosen); setName((old) => (old === "" || old === hubModel.split("/").at(-1) ? (chosen.split("/").at(-1) ?? "") : old)); }} />
          <Group grow align="flex-start">
            <TextInput label="Revision" description="branch, tag or commit; the model records the commit" value={revision} onChange={(event) => setRevision(event.currentTarget.value.trim())} />
            <TextInput label="Secret" description="name of a project secret with a token, for a private or gated model" placeholder="none" value={secret} onChange={(event) => setSecret(event.currentTarget.value.trim())} />
          </Group>
        </>
      ) : (
        <TextInput label="Path" description="a directory below a --model-root of a node agent; that node validates it" placeholder="/models/qwen3-0.6b" value={path} onChange={(event) => setPath(event.currentTarget.value)} />
      )}
      <TextInput label="Name" required value={name} onChange={(event) => setName(event.currentTarget.value)} />
      <Group justify="flex-end"><Button disabled={!isReady} loading={register.isPending || fetchFromHub.isPending} onClick={() => (source === "hub" ? fetchFromHub : register).mutate()}>{source === "hub" ? "Import" : "Register"}</Button></Group>
    </div>
  );
}
