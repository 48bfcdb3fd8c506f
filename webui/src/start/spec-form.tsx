import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import type { FieldProblem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import type { Json } from "../common/json.ts";
import { Empty } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { checkpointOptions } from "./checkpoint-options.ts";
import { errorsByField, fieldOf } from "./faults.ts";
import { fieldsOf, findFields, SECTIONS } from "./sections.ts";
import { SpecFieldInput, type Option } from "./spec-field.tsx";
import { pointerOf } from "./spec-schema.ts";
import { valueAt } from "./spec-state.ts";
import classes from "./start-page.module.css";

type Props = {
  spec: Json; errors: FieldProblem[]; showAll: boolean; search: string; target: string | null;
  onChange: (path: string[], value: unknown) => void; onFocused: () => void; onNoField: () => void;
};

/** The kinds that this page can start. The others have their own pages. */
const KINDS: Option[] = [
  { value: "rl", label: "rl: asynchronous RL" }, { value: "sft", label: "sft: supervised warm start" }, { value: "dpo", label: "dpo: learn from preference pairs" }, { value: "eval", label: "eval: score a model" },
];

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
    "/kind": KINDS,
    "/dataset/version": versions,
    "/evaluation/dataset": versions,
    "/model/base_model": [...new Set(models.filter((model) => model.state === "READY").map((model) => model.name))].map((name) => ({ value: name, label: name })),
    "/model/checkpoint": checkpointOptions(checkpoints),
  };
}

/** The spec as a form. A field with an error, and one that a link leads to, is shown even if its section hides it. */
export function SpecForm({ spec, errors, showAll, search, target, onChange, onFocused, onNoField }: Props) {
  const choices = useChoices();
  const [revealed, setRevealed] = useState<string[]>([]);
  const messages = errorsByField(errors);
  const kind = String(spec["kind"] ?? "rl");
  const shown = [...messages.keys(), ...revealed];
  const sections = SECTIONS.filter((section) => section.kinds.includes(kind)).map((section) => {
    const isHiding = shown.some((pointer) => section.roots.includes(pointer.split("/")[1]!) && !section.first.includes(pointer));
    return { section, fields: search === "" ? fieldsOf(section, showAll || isHiding) : findFields(section, search) };
  }).filter(({ fields }) => fields.length > 0);

  useEffect(() => {
    if (target === null) return;
    const field = fieldOf(target) ?? "";
    const input = document.querySelector<HTMLElement>(`[data-field="${CSS.escape(field)}"]`);
    if (input !== null) {
      input.scrollIntoView({ block: "center" });
      input.focus({ preventScroll: true });
      onFocused();
    } else if (field !== "" && !revealed.includes(field)) setRevealed([...revealed, field]);
    else onNoField();
  }, [target, revealed, onFocused, onNoField]);

  // Base model and checkpoint are mutually exclusive: setting one removes the other.
  const write = (path: string[], value: unknown) => {
    const other = { "/model/base_model": "checkpoint", "/model/checkpoint": "base_model" }[pointerOf(path)];
    if (other !== undefined && value !== undefined) onChange(["model", other], undefined);
    onChange(path, value);
  };
  if (sections.length === 0) return <Panel><Empty title="No field has these words">Search for a part of its name or of its explanation, such as “staleness”.</Empty></Panel>;
  return (
    <div className={classes.form}>
      {sections.map(({ section, fields }) => (
        <Panel key={section.title} title={section.title} aside={section.note} className={classes.section}>
          <div className={classes.fields}>
            {fields.map((field) => {
              const pointer = pointerOf(field.path);
              return (
                <div key={pointer} className={pointer === "/notes" ? classes.wide : undefined}>
                  <SpecFieldInput field={field} value={valueAt(spec, field.path)} options={choices[pointer]} error={messages.get(pointer)} onChange={(value) => write(field.path, value)} />
                </div>
              );
            })}
          </div>
        </Panel>
      ))}
    </div>
  );
}
