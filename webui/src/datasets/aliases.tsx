import { ActionIcon, Button, Group, Modal, Text, TextInput } from "@mantine/core";
import { IconTag, IconX } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { put, remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Dataset, Version } from "../api/schema.d.ts";
import { ago } from "../common/format.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { useDialog } from "../common/use-dialog.ts";
import classes from "./statistics.module.css";

/** Names that mean a version until they are moved. */
export function Aliases({ dataset, version, readOnly }: { dataset: Dataset; version: Version; readOnly: string | null }) {
  const { data, error, refetch } = useQuery(queries.datasetAliases(dataset.id));
  const dialog = useDialog<{ remove: string } | "set">();
  const { shown } = dialog;
  return (
    <div className={classes.aliases} data-testid="aliases">
      <span style={{ color: "var(--ink-soft)" }}>Aliases</span>
      {data?.length === 0 && <span style={{ color: "var(--ink-soft)" }}>none: an alias such as {dataset.name}@gold means one version until it is moved</span>}
      {data?.map(({ name, ref, updated_by, updated_at }) => (
        <span key={name} className={classes.alias} title={`Set by ${updated_by}, ${ago(updated_at)}`}>
          <span className="mono">@{name}</span> → {ref}
          {readOnly === null && <ActionIcon size="sm" variant="subtle" color="gray" aria-label={`Delete alias ${name}`} onClick={() => dialog.show({ remove: name })}><IconX size={12} /></ActionIcon>}
        </span>
      ))}
      {readOnly === null && <Button variant="default" leftSection={<IconTag size={14} />} onClick={() => dialog.show("set")}>Set an alias on {version.ref}</Button>}
      <ProblemNotice error={error} retry={() => void refetch()} />
      {shown !== null && (
        <Modal opened onClose={dialog.close} title={shown === "set" ? `Set an alias on ${version.ref}` : `Delete alias ${shown.remove}?`}>
          {shown === "set" ? <SetAlias dataset={dataset} version={version} done={dialog.close} /> : <DeleteAlias dataset={dataset} name={shown.remove} done={dialog.close} />}
        </Modal>
      )}
    </div>
  );
}

function SetAlias({ dataset, version, done }: { dataset: Dataset; version: Version; done: () => void }) {
  const [name, setName] = useState("");
  const now = dataset.aliases[name];
  const client = useQueryClient();
  const set = useMutation({
    mutationFn: () => put("/api/v1/datasets/{dataset_id}/aliases/{dataset_alias}", { path: { dataset_id: dataset.id, dataset_alias: name }, body: { version: version.id, expected: now ?? null } }),
    onSuccess: () => { void client.invalidateQueries({ queryKey: ["datasets"] }); done(); },
  });
  return (
    <form onSubmit={(event) => { event.preventDefault(); set.mutate(); }}>
      <ProblemNotice error={set.error} />
      <TextInput label="Alias" description={`runs name it as ${dataset.name}@${name || "gold"}`} required data-autofocus value={name} onChange={(event) => setName(event.currentTarget.value.trim())} />
      <Text size="sm" mt={8} mb="md">{now === undefined ? "Runs that start from then on and name the alias use this version." : `The alias means ${dataset.name}@${now} now. Runs that start later use ${version.ref}; runs that exist keep their version.`}</Text>
      <Group justify="flex-end" gap={8}><Button variant="default" onClick={done}>Cancel</Button><Button type="submit" disabled={name === "" || now === version.number} loading={set.isPending}>{now === undefined ? "Set alias" : "Move alias"}</Button></Group>
    </form>
  );
}

function DeleteAlias({ dataset, name, done }: { dataset: Dataset; name: string; done: () => void }) {
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => remove("/api/v1/datasets/{dataset_id}/aliases/{dataset_alias}", { path: { dataset_id: dataset.id, dataset_alias: name } }),
    onSuccess: () => { void client.invalidateQueries({ queryKey: ["datasets"] }); done(); },
  });
  return (
    <>
      <ProblemNotice error={act.error} />
      <Text size="sm" mb="md">New runs, templates and sweeps that name {dataset.name}@{name} are rejected from then on. The version and runs that exist stay as they are.</Text>
      <Group justify="flex-end" gap={8}><Button variant="default" onClick={done} data-autofocus>Cancel</Button><Button color="red" loading={act.isPending} onClick={() => act.mutate()}>Delete alias</Button></Group>
    </>
  );
}
