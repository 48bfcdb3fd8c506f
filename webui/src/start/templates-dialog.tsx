import { Button, Modal, Select, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Template } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { ago } from "../common/format.ts";
import type { Json } from "../common/json.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { withTemplate } from "./merge-patch.ts";
import { SaveTemplate } from "./save-template.tsx";
import classes from "./templates-dialog.module.css";

type Props = { spec: Json; readOnly: boolean; onUse: (spec: Json) => void; onClose: () => void };

/** The templates of the project and the team: begin with one, keep the spec of the page as one, or delete one. */
export default function TemplatesDialog({ spec, readOnly, onUse, onClose }: Props) {
  const { data, error, refetch } = useQuery(queries.templates);
  return (
    <Modal opened onClose={onClose} title="Templates" size="lg" closeButtonProps={{ "aria-label": "Close" }}>
      <Stack gap="md">
        <ProblemNotice error={error} retry={() => void refetch()} />
        {data === undefined ? error === null && <Waiting label="Loading templates" /> : data.length === 0
          ? <Empty title="No templates yet">A template is a spec under a name, with versions. Runs of the project begin with it.</Empty>
          : <ul className={classes.list} aria-label="Templates">{data.map((template) => <Row key={template.id} template={template} readOnly={readOnly} onUse={(values) => { onUse(withTemplate(spec, values)); onClose(); }} />)}</ul>}
        {!readOnly && data !== undefined && <SaveTemplate title="Keep this spec as a template" spec={spec} templates={data} />}
      </Stack>
    </Modal>
  );
}

/** A template with the choice of its version. Versions never change, so an older one gives the runs of then. */
function Row({ template, readOnly, onUse }: { template: Template; readOnly: boolean; onUse: (spec: Json) => void }) {
  const [isAsking, setAsking] = useState(false);
  const newest = template.versions.at(-1)!;
  const [number, setNumber] = useState<number | null>(null); // null: the newest, also after one was added
  const version = template.versions.find((one) => one.number === number) ?? newest;
  return (
    <li>
      <div className={classes.text}>
        <strong>{template.name}@{version.number}</strong> {template.of_team && <span className={classes.faint}>of the team</span>}
        {template.description !== "" && <p>{template.description}</p>}
        <p className={classes.faint}>by {template.created_by}, {ago(version.created_at)}</p>
      </div>
      {template.versions.length > 1 && (
        <Select
          aria-label={`Version of ${template.name}`} w={132} allowDeselect={false} value={String(version.number)} onChange={(value) => setNumber(Number(value))}
          data={template.versions.toReversed().map((one) => ({ value: String(one.number), label: `Version ${one.number}${one === newest ? ", newest" : ""}` }))}
        />
      )}
      <Button size="compact-sm" variant="default" onClick={() => onUse(version.spec as Json)} aria-label={`Use ${template.name}`}>Use</Button>
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
