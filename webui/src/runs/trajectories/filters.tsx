import { Button, Select, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconX } from "@tabler/icons-react";
import { useEffect, useRef, useState } from "react";

import classes from "./filters.module.css";
import { CHOICES, filterError, FILTERS, withoutFilters, type Filter } from "./trajectory-filter.ts";

const ALWAYS_VISIBLE = 5;
const TYPING_MILLISECONDS = 250;

type Props = { search: URLSearchParams; onChange: (search: URLSearchParams) => void };

/** The filters of the list. They are sent to the server and held by the URL. */
export function TrajectoryFilters({ search, onChange }: Props) {
  const set = (name: string, value: string) => {
    const changed = new URLSearchParams(search);
    if (value === "") changed.delete(name);
    else changed.set(name, value);
    onChange(changed);
  };
  const count = FILTERS.filter(({ name }) => search.has(name)).length;
  const hidden = FILTERS.slice(ALWAYS_VISIBLE);
  const field = (filter: Filter) => <Field key={filter.name} filter={filter} value={search.get(filter.name) ?? ""} onChange={(value) => set(filter.name, value)} />;
  return (
    <form className={classes.filters} role="search" aria-label="Filter trajectories" onSubmit={(event) => event.preventDefault()}>
      <div className={classes.fields}>{FILTERS.slice(0, ALWAYS_VISIBLE).map(field)}</div>
      <details className={classes.more} open={hidden.some(({ name }) => search.has(name)) || undefined}>
        <summary>More filters</summary>
        <div className={classes.fields}>{hidden.map(field)}</div>
      </details>
      {count > 0 && <Button variant="subtle" size="compact-xs" leftSection={<IconX size={12} />} onClick={() => onChange(withoutFilters(search))}>Clear {count} {count === 1 ? "filter" : "filters"}</Button>}
    </form>
  );
}

function Field({ filter, value, onChange }: { filter: Filter; value: string; onChange: (value: string) => void }) {
  const options = CHOICES[filter.name];
  if (options !== undefined) {
    return <Select size="xs" label={filter.label} title={filter.help} placeholder="Any" clearable data={options} value={value === "" ? null : value} onChange={(chosen) => onChange(chosen ?? "")} />;
  }
  return <TypedField filter={filter} value={value} onChange={onChange} />;
}

/** Holds what is typed, because the URL follows when the keys rest. */
function TypedField({ filter, value, onChange }: { filter: Filter; value: string; onChange: (value: string) => void }) {
  const [typed, setTyped] = useState(value);
  const isTyping = useRef(false);
  const send = useDebouncedCallback((text: string) => {
    isTyping.current = false;
    onChange(text);
  }, TYPING_MILLISECONDS);
  useEffect(() => {
    if (!isTyping.current) setTyped(value);
  }, [value]);
  return (
    <TextInput
      size="xs" label={filter.label} title={filter.help} value={typed} error={filterError(filter.kind, typed)} placeholder={filter.name === "q" ? "Text  /" : "Any"}
      type={filter.name === "q" ? "search" : "text"} inputMode={filter.kind === "text" ? undefined : "decimal"} className={filter.name === "q" ? classes.wide : undefined}
      onChange={({ currentTarget }) => {
        isTyping.current = true;
        setTyped(currentTarget.value);
        send(currentTarget.value);
      }}
    />
  );
}
