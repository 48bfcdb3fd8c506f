import { Autocomplete, Button, Select, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { useState } from "react";
import { useSearchParams } from "react-router";

import { ACTIONS, CUSTOM, PERIODS, withFilter } from "./audit-filter.ts";
import classes from "./team.module.css";

const TEXTS = [
  { name: "actor", label: "Who", placeholder: "name or id" },
  { name: "action", label: "Action", placeholder: "run.stop, or run.*" },
  { name: "target", label: "On", placeholder: "name or id" },
] as const;

/** The filters of the log, which the URL holds. Text is applied a moment after typing. */
export function AuditFilters() {
  const [search, setSearch] = useSearchParams();
  const [texts, setTexts] = useState<Record<string, string>>(() => Object.fromEntries(TEXTS.map(({ name }) => [name, search.get(name) ?? ""])));
  const set = (name: string, value: string | null) => setSearch((old) => withFilter(old, name, value), { replace: true });
  const apply = useDebouncedCallback(set, 300);
  const isCustom = search.has("since") || search.has("until") || search.get("period") === CUSTOM;
  const period = isCustom ? CUSTOM : (search.get("period") ?? "");
  const isAny = ["actor", "action", "target", "period", "since", "until"].some((name) => search.has(name));
  const text = (name: string) => ({
    value: texts[name] ?? "",
    onChange: (value: string) => {
      setTexts((old) => ({ ...old, [name]: value }));
      apply(name, value);
    },
  });
  return (
    <div className={classes.filters} role="search" aria-label="Audit log">
      {TEXTS.map(({ name, label, placeholder }) => name === "action"
        ? <Autocomplete key={name} size="xs" label={label} placeholder={placeholder} data={ACTIONS} {...text(name)} />
        : <TextInput key={name} label={label} placeholder={placeholder} value={text(name).value} onChange={(event) => text(name).onChange(event.currentTarget.value)} />)}
      <Select label="Time" value={period} allowDeselect={false} onChange={(value) => set("period", value)} data={[{ value: "", label: "Any time" }, ...Object.entries(PERIODS).map(([value, { label }]) => ({ value, label })), { value: CUSTOM, label: "From, to…" }]} />
      {isCustom && (
        <>
          <TextInput type="datetime-local" label="From, in the browser's zone" value={search.get("since") ?? ""} onChange={(event) => set("since", event.currentTarget.value)} />
          <TextInput type="datetime-local" label="To, in the browser's zone" value={search.get("until") ?? ""} onChange={(event) => set("until", event.currentTarget.value)} />
        </>
      )}
      {isAny && <Button variant="subtle" style={{ justifySelf: "start" }} onClick={() => { setTexts({}); setSearch({ tab: "audit" }, { replace: true }); }}>Clear filters</Button>}
    </div>
  );
}
