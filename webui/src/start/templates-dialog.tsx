import { Button, Checkbox, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post, remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Template } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { ago } from "../common/format.ts";
import type { Json } from "../common/json.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import classes from "./templates-dialog.module.css";

type Props = { spec: Json; readOnly: boolean; onUse: (template: Template) => void; onClose: () => void };

/** The templates of the project and the team: begin with one, keep the spec of the page as one, or delete one. */
export default function TemplatesDialog({ spec, readOnly, onUse, onClose }: Props) {
  const { data, error, refetch } = useQuery(queries.templates);
  return (
    <Modal opened onClose={onClose} title="Templates" size="lg" closeButtonProps={{ "aria-label": "Close" }}>
      <Stack gap="md">
        <ProblemNotice error={error} retry={() => void refetch()} />
        {data === undefined ? error === null && <Waiting label="Loading templates" /> : data.length === 0
          ? <Empty title="No templates yet">A template is a spec under a name, with versions. Runs of the project begin with it.</Empty>
          : <ul className={classes.list} aria-label="Templates">{data.map((template) => <Row key={template.id} template={template} readOnly={readOnly} onUse={() => { onUse(template); onClose(); }} />)}</ul>}
        {!readOnly && data !== undefined && <SaveForm spec={spec} templates={data} />}
      </Stack>
    </Modal>
  );
}

function Row({ template, readOnly, onUse }: { template: Template; readOnly: boolean; onUse: () => void }) {
  const [isAsking, setAsking] = useState(false);
  return (
    <li>
      <div className={classes.text}>
        <strong>{template.ref}</strong> {template.of_team && <span className={classes.faint}>of the team</span>}
        {template.description !== "" && <p>{template.description}</p>}
        <p className={classes.faint}>by {template.created_by}, {ago(template.created_at)}</p>
      </div>
      <Button size="compact-sm" variant="default" onClick={onUse} aria-label={`Use ${template.name}`}>Use</Button>
      {!readOnly && <Button size="compact-sm" variant="subtle" color="red" onClick={() => setAsking(true)} aria-label={`Delete ${template.name}`}>Delete</Button>}
      {isAsking && (
        <Confirm
          title={`Delete ${template.name}?`} action="Delete template" changes={[queries.templates.queryKey]} onClose={() => setAsking(false)}
          run={() => remove("/api/v1/run-templates/{template_id}", { path: { template_id: template.id } })}
        >
          All {template.versions.length} versions are deleted. Runs that were made from it stay.
        </Confirm>
      )}
    </li>
  );
}

function SaveForm({ spec, templates }: { spec: Json; templates: Template[] }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const [forTeam, setForTeam] = useState(false);
  const client = useQueryClient();
  const existing = templates.find((template) => template.name === name.trim());
  const save = useMutation({
    mutationFn: () => (existing === undefined
      ? post("/api/v1/run-templates", { body: { name: name.trim(), description, spec, for_team: forTeam } })
      : post("/api/v1/run-templates/{template_id}/versions", { path: { template_id: existing.id }, body: { spec } })),
    onSuccess: async () => { setName(""); setDescription(""); await client.invalidateQueries({ queryKey: queries.templates.queryKey }); },
  });
  return (
    <form className={classes.form} onSubmit={(event) => { event.preventDefault(); save.mutate(); }}>
      <Text size="sm" fw={600}>Keep this spec as a template</Text>
      <ProblemNotice error={save.error} />
      <TextInput label="Name" description="small letters, digits and -" required value={name} maxLength={61} onChange={(event) => setName(event.currentTarget.value)} />
      {existing === undefined && <TextInput label="Description" value={description} onChange={(event) => setDescription(event.currentTarget.value)} />}
      {existing === undefined && <Checkbox label="For every project of the team" checked={forTeam} onChange={(event) => setForTeam(event.currentTarget.checked)} />}
      {existing !== undefined && <Text size="sm">Adds version {existing.versions.length + 1} of {existing.name}.</Text>}
      <Group justify="flex-end"><Button type="submit" variant="default" loading={save.isPending} disabled={name.trim() === ""}>{existing === undefined ? "Save template" : "Add version"}</Button></Group>
    </form>
  );
}
