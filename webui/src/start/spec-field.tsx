import { InputBase, Select, TextInput } from "@mantine/core";
import { useEffect, useState } from "react";

import { words } from "../common/format.ts";
import { pointerOf, type SpecField } from "./spec-schema.ts";
import classes from "./start-page.module.css";

export type Option = { value: string; label: string };

type Props = { field: SpecField; value: unknown; error: string | undefined; options?: Option[]; onChange: (value: unknown) => void };

/** Fields in these sections are labeled with the section, because their own name is ambiguous. */
const WITH_PARENT = new Set(["importance_weight", "advantage", "evaluation", "checkpoint", "staleness", "weight_sync", "budget"]);

function labelOf(path: string[]): string {
  const [last, parent] = [path.at(-1)!, path.at(-2)];
  return parent !== undefined && WITH_PARENT.has(parent) ? `${words(parent)}: ${words(last).toLowerCase()}` : words(last);
}

function textOf(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Parse the text of a field. Empty text omits the key, so that its default applies. Invalid numbers stay text, so that the server reports them. */
function parse(kind: SpecField["kind"], text: string): unknown {
  if (text.trim() === "") return undefined;
  if (kind === "number" || kind === "integer") return Number.isFinite(Number(text)) ? Number(text) : text;
  if (kind !== "json") return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text; // incomplete JSON during typing
  }
}

/** The input for one key of the spec. Its help, choices and default come from the schema. */
export function SpecFieldInput({ field, value, error, options, onChange }: Props) {
  const pointer = pointerOf(field.path);
  const common = { label: labelOf(field.path), description: field.description || undefined, error, inputWrapperOrder: ["label", "input", "description", "error"] as ("label" | "input" | "description" | "error")[] };
  const placeholder = field.defaultValue === undefined || field.defaultValue === null ? "" : textOf(field.defaultValue);
  const [draft, setDraft] = useState(textOf(value));
  useEffect(() => {
    setDraft((old) => (textOf(parse(field.kind, old)) === textOf(value) ? old : textOf(value)));
  }, [field.kind, value]);

  if (field.kind === "boolean") {
    const isOn = typeof value === "boolean" ? value : field.defaultValue === true;
    return (
      <label className={classes.check}>
        <input type="checkbox" checked={isOn} onChange={(event) => onChange(event.currentTarget.checked)} data-field={pointer} aria-invalid={error !== undefined} />
        <span>{common.label}<small>{field.description}</small>{error !== undefined && <small className={classes.wrong}>{error}</small>}</span>
      </label>
    );
  }
  if (field.kind === "choice" || options !== undefined) {
    const data = options ?? field.choices.map((choice) => ({ value: choice, label: choice }));
    const current = typeof value === "string" && value !== "" ? value : null;
    const known = current === null || data.some((option) => option.value === current) ? data : [{ value: current, label: current }, ...data];
    return <Select {...common} data={known} value={current} placeholder={placeholder} clearable searchable={options !== undefined} onChange={(chosen) => onChange(chosen ?? undefined)} data-field={pointer} />;
  }
  const props = {
    ...common, value: draft, placeholder, "data-field": pointer,
    onChange: (event: { currentTarget: { value: string } }) => {
      setDraft(event.currentTarget.value);
      onChange(parse(field.kind, event.currentTarget.value));
    },
  };
  if (pointer === "/notes") return <InputBase {...props} component="textarea" size="xs" multiline rows={2} />;
  return <TextInput {...props} classNames={field.kind === "json" ? { input: "mono" } : undefined} inputMode={field.kind === "number" || field.kind === "integer" ? "decimal" : undefined} />;
}
