import { Button, Group, Modal, SegmentedControl, Table, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { IconPlus } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Model, Upload } from "../api/schema.d.ts";
import { CopyId } from "../common/copy-id.tsx";
import { DropZone } from "../common/drop-zone.tsx";
import { bytes, compact, moment } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";

export function ModelsPage() {
  const { data, error, isPending, refetch } = useQuery({
    ...queries.models,
    refetchInterval: (query) => query.state.data?.data.some((model) => model.state === "VALIDATING") ? 2000 : false,
  });
  const [isOpen, { open, close }] = useDisclosure(false);
  const list = data?.data ?? [];
  return (
    <>
      <PageHeader title="Base models" aside={<Button onClick={open} leftSection={<IconPlus size={14} />}>Register model</Button>}>
        Initial weights for runs: safetensors with a config and a tokenizer. Code in a model is not allowed.
      </PageHeader>
      <ProblemNotice error={error} retry={() => void refetch()} />
      <Panel flush>
        {isPending ? <Waiting /> : data === undefined ? null : list.length === 0 ? (
          <Empty title="No base models yet" action={<Button onClick={open}>Register model</Button>}>Upload an archive of a Hugging Face model directory, or enter a path that a node can read.</Empty>
        ) : (
          <Table className="tabular" data-testid="models">
            <Table.Thead>
              <Table.Tr><Table.Th>Name</Table.Th><Table.Th>State</Table.Th><Table.Th>Family</Table.Th><Table.Th ta="right">Parameters</Table.Th><Table.Th ta="right">Size</Table.Th><Table.Th>Source</Table.Th><Table.Th>SHA-256</Table.Th><Table.Th>Registered</Table.Th><Table.Td /></Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {list.map((model) => (
                <Table.Tr key={model.id}>
                  <Table.Td><span style={{ fontWeight: 580 }}>{model.ref || model.name}</span><div style={{ color: "var(--ink-faint)" }}><CopyId id={model.id} /></div></Table.Td>
                  <Table.Td><State model={model} /></Table.Td>
                  <Table.Td>{model.family}</Table.Td>
                  <Table.Td ta="right">{compact(model.parameters)}</Table.Td>
                  <Table.Td ta="right">{bytes(model.bytes)}</Table.Td>
                  <Table.Td>{model.source}</Table.Td>
                  <Table.Td>{model.sha256 ? <CopyId id={model.sha256} label={model.sha256.slice(0, 12)} /> : null}</Table.Td>
                  <Table.Td c="dimmed">{moment(model.created_at)}</Table.Td>
                  <Table.Td ta="right">{model.state === "READY" ? <Link to={`/runs/new?model=${model.id}`}>Start a run</Link> : null}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
      </Panel>
      <Modal opened={isOpen} onClose={close} title="Register a base model" size="lg">
        <Register onDone={close} />
      </Modal>
    </>
  );
}

/** The state of a model. For an invalid model also its errors. */
function State({ model }: { model: Model }) {
  if (model.state !== "INVALID") return <>{model.state}</>;
  const errors = model.errors.map((error) => `${error.pointer}: ${error.message}`).join("\n");
  return <span title={errors}>{model.state}<div style={{ color: "var(--ink-faint)", maxWidth: 420, whiteSpace: "normal" }}>{model.message}</div></span>;
}

function Register({ onDone }: { onDone: () => void }) {
  const [source, setSource] = useState<"upload" | "path">("upload");
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
  const isReady = name !== "" && (source === "upload" ? uploaded !== null : path !== "");
  return (
    <div style={{ display: "grid", gap: 12 }}>
      <ProblemNotice error={register.error} />
      <SegmentedControl value={source} onChange={(value) => setSource(value as "upload" | "path")} data={[{ value: "upload", label: "Upload an archive" }, { value: "path", label: "Path on a node" }]} />
      {source === "upload" ? (
        <DropZone
          purpose="model" accept=".tar,.tar.gz,.tgz,.zip" hint="tar, tar.gz or zip of a Hugging Face directory: config.json, tokenizer.json, *.safetensors"
          onUploaded={(upload) => { setUploaded(upload); setName((old) => old || upload.filename.replace(/\.(tar|gz|tgz|zip)/g, "")); }}
        />
      ) : (
        <TextInput label="Path" description="a directory below a --model-root of a node agent; that node validates it" placeholder="/models/qwen3-0.6b" value={path} onChange={(event) => setPath(event.currentTarget.value)} />
      )}
      <TextInput label="Name" required value={name} onChange={(event) => setName(event.currentTarget.value)} />
      <Group justify="flex-end"><Button disabled={!isReady} loading={register.isPending} onClick={() => register.mutate()}>Register</Button></Group>
    </div>
  );
}
