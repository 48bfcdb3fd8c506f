import { Modal } from "@mantine/core";
import { IconSearch } from "@tabler/icons-react";
import { useEffect, useId, useRef, useState, type KeyboardEvent } from "react";
import { useNavigate } from "react-router";

import { ProblemNotice } from "../common/notices.tsx";
import { nextEntry, type Entry } from "./entries.ts";
import classes from "./palette.module.css";
import { useEntries } from "./use-entries.ts";

/** Search over pages, runs, templates, datasets and checkpoints, as a combobox with a list of results. */
export function Palette({ onClose }: { onClose: () => void }) {
  const [query, setQuery] = useState("");
  const [chosen, setChosen] = useState<string>();
  const { groups, isSearching, error } = useEntries(query);
  const navigate = useNavigate();
  const listId = useId();
  const list = useRef<HTMLDivElement>(null);
  const entries = groups.flatMap((group) => group.entries);
  const active = entries.find(({ id }) => id === chosen) ?? entries[0];
  const optionId = (id: string) => `${listId}-${id}`;

  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [active?.id]);

  const open = (entry: Entry) => {
    onClose();
    void navigate(entry.to);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    if (event.key === "Enter" && active !== undefined) {
      event.preventDefault();
      open(active);
    } else if (event.key.toLowerCase() === "k" && (event.metaKey || event.ctrlKey)) {
      event.preventDefault();
      onClose();
    } else {
      const next = nextEntry(entries, active?.id, event.key);
      if (next === undefined) return;
      event.preventDefault();
      setChosen(next);
    }
  };
  return (
    <Modal.Root opened onClose={onClose} size={600} yOffset="12vh" centered={false}>
      <Modal.Overlay />
      <Modal.Content aria-label="Search">
        <div className={classes.field}>
          <IconSearch size={17} stroke={1.8} aria-hidden />
          <input
            data-autofocus type="text" role="combobox" aria-label="Search pages, runs, templates, datasets and checkpoints" aria-expanded={entries.length > 0} aria-controls={listId}
            aria-autocomplete="list" aria-activedescendant={active === undefined ? undefined : optionId(active.id)} autoComplete="off" spellCheck={false} maxLength={200}
            placeholder="Search pages, runs, templates, datasets, checkpoints" className={classes.input} value={query}
            onChange={(event) => { setQuery(event.currentTarget.value); setChosen(undefined); }} onKeyDown={onKeyDown}
          />
        </div>
        <div>
          {error !== null && <ProblemNotice error={error} />}
          <div id={listId} role="listbox" aria-label="Results" className={classes.results} ref={list}>
            {groups.map((group, index) => (
              <div key={group.name} role="group" aria-labelledby={`${listId}-group-${index}`}>
                <div id={`${listId}-group-${index}`} className={classes.group} role="presentation">{group.name}</div>
                {group.entries.map((entry) => (
                  <div
                    key={entry.id} id={optionId(entry.id)} role="option" aria-selected={entry.id === active?.id} className={classes.option}
                    onMouseMove={() => setChosen(entry.id)} onMouseDown={(event) => event.preventDefault()} onClick={() => open(entry)}
                  >
                    <span className={classes.label}>{entry.label}</span>
                    <span className={classes.detail}>{entry.detail}</span>
                  </div>
                ))}
              </div>
            ))}
          </div>
        </div>
        <div className={classes.foot}>
          <span role="status">{isSearching ? "Searching" : entries.length === 0 ? "No results" : `${entries.length} result${entries.length === 1 ? "" : "s"}`}</span>
          <span aria-hidden>↑↓ move · Enter opens · Esc closes</span>
        </div>
      </Modal.Content>
    </Modal.Root>
  );
}
