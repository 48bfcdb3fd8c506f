import { useQuery } from "@tanstack/react-query";

import type { FieldProblem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import { FieldProblems } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { checkpointOptions } from "./checkpoint-options.ts";
import { fieldsOf, SECTIONS } from "./sections.ts";
import { SpecFieldInput, type Option } from "./spec-field.tsx";
import { pointerOf } from "./spec-schema.ts";
import { valueAt } from "./spec-text.ts";
import classes from "./start-page.module.css";

type Props = { spec: Record<string, unknown>; errors: FieldProblem[]; showAll: boolean; onChange: (path: string[], value: unknown) => void };

/** Options for the fields that reference objects of the project, by the pointer of the field. */
function useChoices(): Record<string, Option[]> {
  const datasets = useQuery(queries.datasets).data?.data ?? [];
  const models = useQuery(queries.models).data?.data ?? [];
  const checkpoints = useQuery(queries.allCheckpoints).data?.data ?? [];
  const versions = datasets.flatMap((dataset) => [
    ...(dataset.latest === null ? [] : [{ value: `${dataset.name}@latest`, label: `${dataset.name}@latest` }]),
    ...dataset.versions.map((version) => ({ value: version.ref, label: `${version.ref} (${version.rows} rows)` })),
  ]);
  return {
    "/dataset/version": versions,
    "/evaluation/dataset": versions,
    "/model/base_model": [...new Set(models.filter((model) => model.state === "READY").map((model) => model.name))].map((name) => ({ value: name, label: name })),
    "/model/checkpoint": checkpointOptions(checkpoints),
  };
}

export function SpecForm({ spec, errors, showAll, onChange }: Props) {
  const choices = useChoices();
  const kind = String(spec["kind"] ?? "rl");
  const sections = SECTIONS.filter((section) => section.kinds.includes(kind)).map((section) => ({ section, fields: fieldsOf(section, showAll || hasHiddenErrors(section.roots, section.first, errors)) }));
  // Base model and checkpoint are mutually exclusive: setting one removes the other.
  const write = (path: string[], value: unknown) => {
    const other = { "/model/base_model": "checkpoint", "/model/checkpoint": "base_model" }[pointerOf(path)];
    if (other !== undefined && value !== undefined) onChange(["model", other], undefined);
    onChange(path, value);
  };
  const visible = new Set(sections.flatMap(({ fields }) => fields.map((field) => pointerOf(field.path))));
  const otherErrors = errors.filter((error) => !visible.has(error.pointer));
  return (
    <>
      <FieldProblems errors={otherErrors} />
      <div className={classes.form}>
        {sections.map(({ section, fields }) => (
          <Panel key={section.title} title={section.title} aside={section.note} className={classes.section}>
            <div className={classes.fields}>
              {fields.map((field) => {
                const pointer = pointerOf(field.path);
                return (
                  <div key={pointer} className={pointer === "/notes" ? classes.wide : undefined}>
                    <SpecFieldInput
                      field={field} value={valueAt(spec, field.path)} options={choices[pointer]} onChange={(value) => write(field.path, value)}
                      error={errors.find((error) => error.pointer === pointer)?.message}
                    />
                  </div>
                );
              })}
            </div>
          </Panel>
        ))}
      </div>
    </>
  );
}

/** Whether a hidden field of the section has an error. The section then shows all fields. */
function hasHiddenErrors(roots: string[], first: string[], errors: FieldProblem[]): boolean {
  return errors.some((error) => roots.includes(error.pointer.split("/")[1] ?? "") && !first.includes(error.pointer));
}
