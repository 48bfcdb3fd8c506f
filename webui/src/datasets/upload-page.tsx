import { Button, Group, Select, Textarea, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate, useSearchParams } from "react-router";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { DatasetValidation, MappingRequest as Mapping, Upload } from "../api/schema.d.ts";
import { DropZone } from "../common/drop-zone.tsx";
import { grouped } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { validationProgress, conflictNote } from "./validation-progress.ts";
import { guessMapping, isComplete, type ColumnKey } from "./guess-mapping.ts";
import { RowErrors } from "./row-errors.tsx";
import { RowsTable, textOf } from "./rows-table.tsx";
import classes from "./upload-page.module.css";
import { validate } from "./validate.ts";

const PREVIEW_ROWS = 5;

/** Three steps on one page: choose the file, map its columns, save it under a name. */
export function UploadPage() {
  const [uploaded, setUploaded] = useState<Upload | null>(null);
  return (
    <>
      <PageHeader title="Upload a dataset">Each row has one prompt and what its reward needs. If rows are invalid, nothing is stored and all errors are listed.</PageHeader>
      <div className={classes.steps}>
        <Panel title="1. File">
          <DropZone purpose="dataset" accept=".jsonl,.json,.ndjson,.csv,.parquet,.gz,.zst" hint="JSONL, CSV or Parquet, optionally compressed (.gz, .zst). To resume an interrupted upload, drop the same file again." onUploaded={setUploaded} />
        </Panel>
        {uploaded !== null && <Columns key={uploaded.id} upload={uploaded} />}
      </div>
    </>
  );
}

function Columns({ upload }: { upload: Upload }) {
  const raw = useQuery({
    queryKey: ["preview", upload.id],
    queryFn: ({ signal }) => validate(upload.id, null, PREVIEW_ROWS, { signal }),
    staleTime: Infinity,
    retry: false,
  });
  if (raw.isPending) return <Waiting label="Loading preview" />;
  if (raw.data === undefined) return <><ProblemNotice error={raw.error} retry={() => void raw.refetch()} /></>;
  if (raw.data.state === "INVALID" && raw.data.columns.length === 0) return <RowErrors errors={raw.data.errors} summary={raw.data.message} />;
  return <MappingForm upload={upload} raw={raw.data} />;
}

function MappingForm({ upload, raw }: { upload: Upload; raw: DatasetValidation }) {
  const [search] = useSearchParams();
  const names = raw.columns.map((column) => column.name);
  const [mapping, setMapping] = useState<Mapping>(() => guessMapping(names));
  const [name, setName] = useState(search.get("name") ?? upload.filename.replace(/(\.(jsonl|ndjson|json|csv|parquet|gz|zst))+$/, "").replaceAll(/[^\w.-]+/g, "-"));
  const [description, setDescription] = useState("");
  const navigate = useNavigate();
  const client = useQueryClient();
  const { data: datasets } = useQuery(queries.datasets);
  const complete = isComplete(mapping);

  const [settled] = useDebouncedValue(mapping, 350);
  const rendered = useQuery({
    queryKey: ["preview", upload.id, settled],
    queryFn: ({ signal }) => validate(upload.id, settled, PREVIEW_ROWS, { signal }),
    enabled: isComplete(settled),
    placeholderData: keepPreviousData,
    staleTime: Infinity,
    retry: false,
  });

  const [invalid, setInvalid] = useState<DatasetValidation | null>(null);
  const [checking, setChecking] = useState<DatasetValidation | null>(null);
  const store = useMutation({
    mutationFn: async () => {
      const checked = await validate(upload.id, mapping, null, { onProgress: setChecking });
      if (checked.state !== "VALID") return setInvalid(checked);
      const existing = datasets?.data.find((dataset) => dataset.name === name);
      const dataset = existing ?? (await post("/api/v1/datasets", { body: { name, description } }));
      return post("/api/v1/datasets/{dataset_id}/versions", { path: { dataset_id: dataset.id }, body: { validation_id: checked.id } });
    },
    onMutate: () => {
      setInvalid(null);
      setChecking(null);
    },
    onSuccess: (version) => {
      if (version === undefined) return;
      notifications.show({ message: `${version.ref} was created with ${grouped(version.rows)} rows${conflictNote(checking)}` });
      void navigate(`/datasets/${version.dataset.id}?version=${version.id}`);
    },
    onSettled: () => void client.invalidateQueries({ queryKey: queries.datasets.queryKey }),
  });

  const set = (change: Partial<Mapping>) => setMapping((old) => ({ ...old, ...change }));
  const column = (key: ColumnKey, label: string, description: string, required: boolean) => (
    <Select
      label={label} description={description} required={required} clearable={!required} searchable data={names} data-testid={key}
      value={mapping[key] ?? null} onChange={(value) => set({ [key]: value ?? (required ? "" : null) })}
    />
  );
  const existingDataset = datasets?.data.find((dataset) => dataset.name === name);
  return (
    <>
      <Panel title="Preview" aside={raw.columns.map((entry) => `${entry.name}: ${entry.type}${entry.missing > 0 ? ` (${entry.missing} missing)` : ""}`).join(" · ")} flush>
        <RowsTable rows={raw.sample.slice(0, PREVIEW_ROWS)} order={names} />
      </Panel>
      <Panel title="2. Columns">
        <div className={classes.mapping}>
          <div className={classes.fields}>
            {column("prompt_column", "Prompt", "the input to the model", true)}
            {column("answer_column", "Answer", "the expected answer that the reward compares with; rows with a pair need none", false)}
            {column("completion_column", "Completion", "a demonstration, required for a warm start (sft)", false)}
            {column("chosen_column", "Chosen", "the better completion of a preference pair (dpo): a text or messages", false)}
            {column("rejected_column", "Rejected", "the worse completion of the pair", false)}
            {column("split_column", "Split", "train, eval, validation …; without it all rows are train", false)}
            {column("source_column", "Source", "which collection the row comes from; a run can weight the sources", false)}
            <Textarea label="Prompt template" description="{name} inserts a column; write {{ for a brace" autosize minRows={2} maxRows={6} value={mapping.template ?? ""} onChange={(event) => set({ template: event.currentTarget.value })} classNames={{ input: "mono" }} />
            <Textarea label="System prompt" description="added before every prompt; leave empty for none" autosize minRows={1} maxRows={6} value={mapping.system ?? ""} onChange={(event) => set({ system: event.currentTarget.value })} />
          </div>
          <div className={classes.preview} data-testid="rendered">
            <h3>Model input</h3>
            <ProblemNotice error={rendered.error} />
            {!complete && <p className={classes.hint}>Select the prompt and answer columns, or the prompt, chosen and rejected columns.</p>}
            {complete && rendered.isPending && <Waiting label="Rendering preview" />}
            {rendered.data?.rendered.map((row, index) => (
              <article key={index} className={classes.example}>
                {row.messages.map((message, position) => (
                  <p key={position}><b>{message.role}</b><span className="mono">{message.content}</span></p>
                ))}
                {row.answer !== "" && <p><b>answer</b><span className="mono">{row.answer}</span></p>}
                {row.completion && <p><b>completion</b><span className="mono">{row.completion}</span></p>}
                {row.chosen && <p><b>chosen</b><span className="mono">{textOf(row.chosen)}</span></p>}
                {row.rejected && <p><b>rejected</b><span className="mono">{textOf(row.rejected)}</span></p>}
                <p><b>split</b><span>{row.split}</span></p>
              </article>
            ))}
            <RowErrors errors={rendered.data?.errors ?? []} />
          </div>
        </div>
      </Panel>
      <Panel title="3. Save">
        <ProblemNotice error={store.error} />
        {store.isPending && <Waiting label={validationProgress(checking)} />}
        {invalid !== null && <RowErrors errors={invalid.errors} summary={invalid.message} report={invalid.state === "INVALID" ? `/api/v1/dataset-validations/${invalid.id}/report` : undefined} />}
        <Group align="flex-end" gap={12}>
          <TextInput label="Name" description={existingDataset ? `creates ${name}@${(existingDataset.latest?.number ?? 0) + 1}` : "creates a new dataset"} required w={260} value={name} onChange={(event) => setName(event.currentTarget.value)} data-testid="dataset-name" />
          {existingDataset === undefined && <TextInput label="Description" description="contents and source of the rows" w={360} value={description} onChange={(event) => setDescription(event.currentTarget.value)} />}
          <Button size="sm" disabled={!complete || name === ""} loading={store.isPending} onClick={() => store.mutate()} data-testid="store">Validate and save</Button>
        </Group>
      </Panel>
    </>
  );
}
