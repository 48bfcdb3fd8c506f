import { Button, Group, Table, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Model } from "../api/schema.d.ts";
import { CopyId } from "../common/copy-id.tsx";
import { bytes, compact, DASH, grouped, moment } from "../common/format.ts";
import { FieldProblems, ProblemNotice } from "../common/notices.tsx";
import { Fact, Facts } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import { sourceText } from "./model-text.ts";

const MAX_FILES = 30;

/** The result of the validation: every error, or what was found. */
export function ModelDetails({ model }: { model: Model }) {
  const largest = [...model.files].sort((one, other) => other.bytes - one.bytes).slice(0, MAX_FILES);
  return (
    <div style={{ display: "grid", gap: 12, fontSize: "0.8125rem" }}>
      <Facts>
        <Fact label="State"><StatusBadge status={model.state} /></Fact>
        <Fact label="Family">{model.family || DASH}</Fact>
        <Fact label="Parameters">{compact(model.parameters)}</Fact>
        <Fact label="Tensors">{grouped(model.tensors)}</Fact>
        <Fact label="Types" help="Parameters by their number format.">{Object.entries(model.dtypes).map(([dtype, count]) => `${dtype} ${compact(count)}`).join(", ") || DASH}</Fact>
        <Fact label="Vocabulary" help="Ids of the tokenizer.">{grouped(model.tokens)}</Fact>
        <Fact label="Source">{sourceText(model)}</Fact>
        <Fact label="Registered">{moment(model.created_at)}</Fact>
      </Facts>
      {model.errors.length > 0 && <Section title={`${model.errors.length} error${model.errors.length === 1 ? "" : "s"}`}><FieldProblems errors={model.errors} /></Section>}
      {model.prompt !== "" && <Section title="What its chat template makes of a small conversation"><pre tabIndex={0} role="region" aria-label="Rendered conversation" className="mono" style={{ margin: 0, padding: 8, maxHeight: 200, overflow: "auto", whiteSpace: "pre-wrap", background: "var(--panel-sunken)" }}>{model.prompt}</pre></Section>}
      {largest.length > 0 && (
        <Section title={`${grouped(model.files.length)} files${model.files.length > MAX_FILES ? `, the ${MAX_FILES} largest` : ""}`}>
          <Table className="tabular"><Table.Tbody>{largest.map((file) => <Table.Tr key={file.name}><Table.Td className="mono" style={{ overflowWrap: "anywhere" }}>{file.name}</Table.Td><Table.Td ta="right">{bytes(file.bytes)}</Table.Td><Table.Td ta="right"><CopyId id={file.sha256} label={file.sha256.slice(0, 12)} /></Table.Td></Table.Tr>)}</Table.Tbody></Table>
        </Section>
      )}
    </div>
  );
}

function Section({ title, children }: { title: string; children: ReactNode }) {
  return <section><h3 style={{ margin: "0 0 4px", fontSize: "0.8125rem", fontWeight: 580 }}>{title}</h3>{children}</section>;
}

export function DeleteModel({ model, done }: { model: Model; done: () => void }) {
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => remove("/api/v1/models/{model_id}", { path: { model_id: model.id } }),
    onSuccess: () => { void client.invalidateQueries({ queryKey: queries.models.queryKey }); done(); },
  });
  return (
    <>
      <ProblemNotice error={act.error} />
      <Text size="sm" mb="md">{model.state === "VALIDATING" ? "Its check is canceled." : "Its report of errors is deleted."} No run uses it: only a model that is ready starts runs. Versions of the same name stay.</Text>
      <Group justify="flex-end" gap={8}><Button variant="default" onClick={done} data-autofocus>Cancel</Button><Button color="red" loading={act.isPending} onClick={() => act.mutate()}>Delete model</Button></Group>
    </>
  );
}
