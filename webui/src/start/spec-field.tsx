import { Select, Switch, Textarea, TextInput } from "@mantine/core";
import { useEffect, useState } from "react";

import { words } from "../common/format.ts";
import { pointerOf, type SpecField } from "./spec-schema.ts";

export type Option = { value: string; label: string };

type Props = { field: SpecField; value: unknown; error: string | undefined; options?: Option[]; onChange: (value: unknown) => void };

/** A key whose own name says too little beside its neighbours is shown with the name of what it lies in. */
const WITH_PARENT = new Set(["importance_weight", "advantage", "evaluation", "checkpoint", "staleness", "weight_sync", "budget"]);

function labelOf(path: string[]): string {
  const [last, parent] = [path.at(-1)!, path.at(-2)];
  return parent !== undefined && WITH_PARENT.has(parent) ? `${words(parent)}: ${words(last).toLowerCase()}` : words(last);
}

function textOf(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Empty means: leave the key out, the default counts. What is no number stays text, so that the server says why not. */
function read(kind: SpecField["kind"], text: string): unknown {
  if (text.trim() === "") return undefined;
  if (kind === "number" || kind === "integer") return Number.isFinite(Number(text)) ? Number(text) : text;
  if (kind !== "document") return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text; // unfinished JSON while it is typed
  }
}

/** One key of the spec; its help, choices and default come from the schema. */
export function SpecFieldInput({ field, value, error, options, onChange }: Props) {
  const pointer = pointerOf(field.path);
  const common = { label: labelOf(field.path), description: field.description || undefined, error, inputWrapperOrder: ["label", "input", "description", "error"] as ("label" | "input" | "description" | "error")[] };
  const standard = field.standard === undefined || field.standard === null ? "" : textOf(field.standard);
  const [draft, setDraft] = useState(textOf(value));
  useEffect(() => {
    setDraft((old) => (textOf(read(field.kind, old)) === textOf(value) ? old : textOf(value)));
  }, [field.kind, value]);

  if (field.kind === "boolean") {
    const isOn = typeof value === "boolean" ? value : field.standard === true;
    return <Switch {...{ ...common, inputWrapperOrder: undefined }} checked={isOn} onChange={(event) => onChange(event.currentTarget.checked)} data-field={pointer} mt={20} />;
  }
  if (field.kind === "choice" || options !== undefined) {
    const data = options ?? field.choices.map((choice) => ({ value: choice, label: choice }));
    const current = typeof value === "string" && value !== "" ? value : null;
    const known = current === null || data.some((option) => option.value === current) ? data : [{ value: current, label: current }, ...data];
    return <Select {...common} data={known} value={current} placeholder={standard} clearable searchable={options !== undefined} onChange={(chosen) => onChange(chosen ?? undefined)} data-field={pointer} />;
  }
  const props = {
    ...common, value: draft, placeholder: standard, "data-field": pointer,
    onChange: (event: { currentTarget: { value: string } }) => {
      setDraft(event.currentTarget.value);
      onChange(read(field.kind, event.currentTarget.value));
    },
  };
  if (pointer === "/notes") return <Textarea {...props} autosize minRows={1} maxRows={5} />;
  return <TextInput {...props} classNames={field.kind === "document" ? { input: "mono" } : undefined} inputMode={field.kind === "number" || field.kind === "integer" ? "decimal" : undefined} />;
}
