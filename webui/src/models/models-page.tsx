import { Button, Modal, Table } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";
import type { Model } from "../api/schema.d.ts";
import "../common/card-table.css";
import { CopyId } from "../common/copy-id.tsx";
import { bytes, compact, moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { StatusBadge } from "../common/status.tsx";
import { useDialog } from "../common/use-dialog.ts";
import { Imports } from "./imports.tsx";
import { DeleteModel, ModelDetails } from "./model-details.tsx";
import { modelPages } from "./model-queries.ts";
import { keepReason, shortSource, sourceText } from "./model-text.ts";
import { Register } from "./register.tsx";

export function ModelsPage() {
  const query = useInfiniteQuery({
    ...modelPages,
    refetchInterval: ({ state }) => state.data?.pages.some((page) => page.data.some((model) => model.state === "VALIDATING")) ? 2000 : false,
  });
  const { data, error, isPending, refetch } = query;
  const [isOpen, { open, close }] = useDisclosure(false);
  const list = data?.pages.flatMap((page) => page.data) ?? [];
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const dialog = useDialog<{ details: Model } | { remove: Model }>();
  const { shown } = dialog;
  return (
    <>
      <PageHeader title="Base models" aside={readOnly === null && list.length > 0 && <Button onClick={open} leftSection={<IconPlus size={14} />}>Register model</Button>}>
        Initial weights for runs: safetensors with a config and a tokenizer. Code in a model is not allowed.
      </PageHeader>
      <ProblemNotice error={error} retry={() => void refetch()} />
      <div style={{ display: "grid", gap: 12 }}>
        <Imports readOnly={readOnly} />
        {(isPending || data !== undefined) && <Panel flush>
          {isPending ? <Waiting /> : list.length === 0 ? (
            <Empty title="No base models yet" action={readOnly === null && <Button onClick={open}>Register model</Button>}>Upload an archive of a Hugging Face model directory, import one from a hub, or enter a path that a node can read.</Empty>
          ) : (
            <Table className="tabular card-table" data-testid="models">
              <Table.Thead>
                <Table.Tr><Table.Th>Name</Table.Th><Table.Th>State</Table.Th><Table.Th>Family</Table.Th><Table.Th ta="right">Parameters</Table.Th><Table.Th ta="right">Size</Table.Th><Table.Th>Source</Table.Th><Table.Th>SHA-256</Table.Th><Table.Th>Registered</Table.Th><Table.Td /></Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {list.map((model) => (
                  <Table.Tr key={model.id}>
                    <Table.Td><span style={{ fontWeight: 580 }}>{model.ref || model.name}</span><div style={{ color: "var(--ink-faint)" }}><CopyId id={model.id} /></div></Table.Td>
                    <Table.Td data-label="State"><State model={model} /></Table.Td>
                    <Table.Td data-label="Family">{model.family}</Table.Td>
                    <Table.Td data-label="Parameters" ta="right">{compact(model.parameters)}</Table.Td>
                    <Table.Td data-label="Size" ta="right" style={{ whiteSpace: "nowrap" }}>{bytes(model.bytes)}</Table.Td>
                    <Table.Td data-label="Source" style={{ overflowWrap: "anywhere", minWidth: 190, maxWidth: 260 }} title={sourceText(model)}>{shortSource(model)}</Table.Td>
                    <Table.Td data-label="SHA-256">{model.sha256 ? <CopyId id={model.sha256} label={model.sha256.slice(0, 12)} /> : null}</Table.Td>
                    <Table.Td data-label="Registered" c="dimmed">{moment(model.created_at)}</Table.Td>
                    <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
                      {model.state === "READY" && readOnly === null && <Link to={`/runs/new?model=${model.id}`} aria-label={`Start a run from ${model.ref}`}>Start a run</Link>}
                      <Button variant="subtle" color="gray" onClick={() => dialog.show({ details: model })} aria-label={`Details of ${model.ref || model.name}`}>Details</Button>
                      {keepReason(model) === null && readOnly === null && <Button variant="subtle" color="red" onClick={() => dialog.show({ remove: model })} aria-label={`Delete ${model.name}`}>Delete</Button>}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )}
          <More query={query} />
        </Panel>}
      </div>
      {shown !== null && "details" in shown && <Modal opened onClose={dialog.close} title={shown.details.ref || shown.details.name} size="xl"><ModelDetails model={shown.details} /></Modal>}
      {shown !== null && "remove" in shown && <Modal opened onClose={dialog.close} title={`Delete ${shown.remove.name}?`}><DeleteModel model={shown.remove} done={dialog.close} /></Modal>}
      <Modal opened={isOpen} onClose={close} title="Register a base model" size="lg">
        <Register onDone={close} />
      </Modal>
    </>
  );
}

/** The state of a model. For one that is not ready also why. */
function State({ model }: { model: Model }) {
  return <><StatusBadge status={model.state} />{model.message !== "" && <div style={{ color: "var(--ink-soft)", fontSize: "0.75rem", maxWidth: 420, whiteSpace: "normal" }}>{model.message}</div>}</>;
}
