import { Button, Checkbox, Group, Modal, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Template } from "../api/schema.d.ts";
import type { Json } from "../common/json.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import classes from "./templates-dialog.module.css";

type FormProps = { title?: string; spec: Json; templates: Template[]; onSaved?: (ref: string) => void };

/** Keeps a spec under a name: as a new template, or as the next version of the one that has the name. */
export function SaveTemplate({ title, spec, templates, onSaved }: FormProps) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const [forTeam, setForTeam] = useState(false);
  const client = useQueryClient();
  const existing = templates.find((template) => template.name === name.trim());
  const save = useMutation({
    mutationFn: () => (existing === undefined
      ? post("/api/v1/run-templates", { body: { name: name.trim(), description, spec, for_team: forTeam } })
      : post("/api/v1/run-templates/{template_id}/versions", { path: { template_id: existing.id }, body: { spec } })),
    onSuccess: async ({ ref }) => { onSaved?.(ref); setName(""); setDescription(""); await client.invalidateQueries({ queryKey: queries.templates.queryKey }); },
  });
  return (
    <form className={classes.form} onSubmit={(event) => { event.preventDefault(); save.mutate(); }}>
      {title !== undefined && <Text size="sm" fw={600}>{title}</Text>}
      <ProblemNotice error={save.error} />
      <TextInput label="Name" description="small letters, digits and -" required value={name} maxLength={61} onChange={(event) => setName(event.currentTarget.value)} />
      {existing === undefined && <TextInput label="Description" value={description} onChange={(event) => setDescription(event.currentTarget.value)} />}
      {existing === undefined && <Checkbox label="For every project of the team" checked={forTeam} onChange={(event) => setForTeam(event.currentTarget.checked)} />}
      {existing !== undefined && <Text size="sm">Adds version {existing.versions.length + 1} of {existing.name}.</Text>}
      <Group justify="flex-end"><Button type="submit" variant="default" loading={save.isPending} disabled={name.trim() === ""}>{existing === undefined ? "Save template" : "Add version"}</Button></Group>
    </form>
  );
}

/** The form alone, for a page that shows one spec. */
export default function SaveTemplateDialog({ spec, onSaved, onClose }: { spec: Json; onSaved: (ref: string) => void; onClose: () => void }) {
  const { data, error, refetch } = useQuery(queries.templates);
  return (
    <Modal opened onClose={onClose} title="Save as template">
      <ProblemNotice error={error} retry={() => void refetch()} />
      {data !== undefined ? <SaveTemplate spec={spec} templates={data} onSaved={(ref) => { onSaved(ref); onClose(); }} /> : error === null && <Waiting label="Loading templates" />}
    </Modal>
  );
}
