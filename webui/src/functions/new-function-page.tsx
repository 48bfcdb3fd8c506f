import { Button, FileButton, Group, SegmentedControl, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconFileCode } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useBeforeUnload, useNavigate, useSearchParams } from "react-router";

import { post } from "../api/http.ts";
import { Problem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { CodeEditor } from "./code-editor.tsx";
import { isKind, KIND_NAMES, KINDS, nameOfFile, sourceErrors } from "./kinds.ts";
import { TEMPLATES } from "./templates.ts";
import type { FunctionData, SourceKind } from "./types.ts";

/** A new function from a template, or with `?function=` the next version of one from its newest source. */
export function NewFunctionPage() {
  const [search] = useSearchParams();
  const id = search.get("function");
  const kind = search.get("kind");
  const existing = useQuery({ ...queries.functionById(id ?? ""), enabled: id !== null });
  const newest = existing.data?.versions[0];
  const source = useQuery({ ...queries.functionSource(newest?.id ?? ""), enabled: newest !== undefined });
  if (id === null) return <Form kind={isKind(kind) ? kind : "reward"} />;
  if (existing.data !== undefined && source.data !== undefined) return <Form key={newest?.id} existing={existing.data} kind={existing.data.kind} source={source.data} />;
  const error = existing.error ?? source.error;
  return error === null ? <Waiting label="Loading the newest source" /> : <ProblemNotice error={error} retry={() => { void existing.refetch(); void source.refetch(); }} />;
}

function Form({ existing, kind: initialKind, source: initialSource }: { existing?: FunctionData; kind: SourceKind; source?: string }) {
  const [kind, setKind] = useState(initialKind);
  const [name, setName] = useState(existing?.name ?? "");
  const [description, setDescription] = useState("");
  const [started, setStarted] = useState(initialSource ?? TEMPLATES[initialKind]); // what the editor began with
  const [source, setSource] = useState(started);
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const client = useQueryClient();
  const navigate = useNavigate();
  const next = (existing?.versions[0]?.number ?? 0) + 1;
  const upload = useMutation({
    mutationFn: () => post("/api/v1/functions", { body: { name, kind, source, description } }),
    onSuccess: (version) => {
      void client.invalidateQueries({ queryKey: ["functions"] });
      const isNew = !(existing?.versions.some(({ number }) => number === version.number) ?? false);
      notifications.show({ message: isNew ? `${version.ref} is uploaded. Runs can use it now.` : `Nothing changed: ${version.ref} has this source.` });
      void navigate(`/functions/${version.function.id}?version=${version.number}`);
    },
  });
  useBeforeUnload((event) => { if (source !== started && !upload.isSuccess) event.preventDefault(); });
  const chooseKind = (chosen: SourceKind) => {
    if (source === started) {
      setSource(TEMPLATES[chosen]);
      setStarted(TEMPLATES[chosen]);
    }
    setKind(chosen);
    upload.reset();
  };
  const read = async (file: File | null) => {
    if (file === null) return;
    setSource(await file.text());
    setName((old) => old || nameOfFile(file.name));
    upload.reset();
  };
  const problems = upload.error instanceof Problem ? upload.error.errors : [];
  const errors = sourceErrors(problems);
  const nameError = problems.find(({ pointer }) => pointer === "/name")?.message;
  const isShown = errors.length > 0 && errors.length === problems.length;
  return (
    <>
      <PageHeader title={existing === undefined ? "New function" : `New version of ${existing.name}`}>
        The source is checked when it is uploaded, and never runs on the control plane. <a href={`/docs/${KINDS[kind].help}`} target="_blank" rel="noreferrer">How to write a {KINDS[kind].label.toLowerCase()}</a>
      </PageHeader>
      {!isShown && nameError === undefined && <ProblemNotice error={upload.error} />}
      {readOnly !== null && <p role="note">{readOnly}</p>}
      <form onSubmit={(event) => { event.preventDefault(); upload.mutate(); }} style={{ display: "grid", gap: 12 }}>
        {existing === undefined && (
          <Panel title="Function">
            <Group align="flex-start" gap={16}>
              <div>
                <div id="kind-label" style={{ fontSize: "0.8125rem", fontWeight: 500, marginBottom: 4 }}>Kind</div>
                <SegmentedControl aria-labelledby="kind-label" value={kind} onChange={(value) => chooseKind(value as SourceKind)} data={KIND_NAMES.map((value) => ({ value, label: KINDS[value].label }))} />
              </div>
              <TextInput label="Name" description="runs name it, as in name@1" inputWrapperOrder={["label", "input", "description", "error"]} required w={240} value={name} error={nameError} onChange={(event) => setName(event.currentTarget.value)} data-testid="function-name" />
              <TextInput label="Description" description="what it rewards or does, for others" inputWrapperOrder={["label", "input", "description"]} w={360} maw="100%" value={description} onChange={(event) => setDescription(event.currentTarget.value)} />
            </Group>
          </Panel>
        )}
        <Panel
          title="Source"
          aside={(
            <>
              {source !== started && <Button variant="subtle" onClick={() => { setSource(started); upload.reset(); }}>{existing === undefined ? "Back to the template" : "Discard changes"}</Button>}
              <FileButton accept=".py,text/x-python" onChange={(file) => void read(file)}>{(props) => <Button {...props} variant="default" leftSection={<IconFileCode size={14} />}>Load a file</Button>}</FileButton>
            </>
          )}
        >
          <Contract kind={kind} />
          <CodeEditor source={source} errors={errors} label={`Python source of the ${kind}`} onChange={setSource} />
        </Panel>
        <Group justify="flex-end" gap={8}>
          <Button component={Link} to={existing === undefined ? "/functions" : `/functions/${existing.id}`} variant="default">Cancel</Button>
          <Button type="submit" loading={upload.isPending} disabled={readOnly !== null || name.trim() === "" || source.trim() === ""} data-testid="upload-function">Upload {name.trim() === "" ? KINDS[kind].label.toLowerCase() : `${name.trim()}${existing === undefined ? "" : `@${next}`}`}</Button>
        </Group>
      </form>
    </>
  );
}

/** What a file of this kind must define, and where it runs. */
function Contract({ kind }: { kind: SourceKind }) {
  const { entry, parameters, isAsync, returns, runsIn } = KINDS[kind];
  return (
    <dl style={{ display: "grid", gridTemplateColumns: "max-content minmax(0, 1fr)", gap: "2px 12px", margin: "0 0 12px", fontSize: "0.8125rem" }}>
      <dt style={{ color: "var(--ink-faint)" }}>Defines</dt><dd style={{ margin: 0 }}><code className="mono">{isAsync ? "async " : ""}def {entry}({parameters.join(", ")}, *, option=default)</code></dd>
      <dt style={{ color: "var(--ink-faint)" }}>Returns</dt><dd style={{ margin: 0 }}>{returns}</dd>
      <dt style={{ color: "var(--ink-faint)" }}>Runs in</dt><dd style={{ margin: 0 }}>{runsIn}</dd>
    </dl>
  );
}
