import { Anchor, Select } from "@mantine/core";

import type { Preset } from "../api/schema.d.ts";
import classes from "./start-page.module.css";

type Props = { label: string; presets: Preset[]; chosen: string; undo: (() => void) | null; onChoose: (name: string) => void };

/** The algorithms to search in. A choice replaces the settings, and can be undone. */
export function PresetSelect({ label, presets, chosen, undo, onChoose }: Props) {
  const preset = presets.find(({ name }) => name === chosen);
  const byName = new Map(presets.map((entry) => [entry.name, entry]));
  return (
    <div className={classes.preset}>
      <Select
        label={label} data={presets.map(({ name, title }) => ({ value: name, label: title }))} value={preset?.name ?? null} placeholder="Choose one"
        searchable selectFirstOptionOnChange nothingFoundMessage="No preset has these words" maxDropdownHeight={420} allowDeselect={false} comboboxProps={{ width: 440, position: "bottom-start" }} data-testid="preset"
        filter={({ options, search }) => options.filter((option) => "value" in option && matches(byName.get(String(option.value))!, search))}
        renderOption={({ option }) => <span className={classes.option}><strong>{option.label}</strong><span>{byName.get(String(option.value))?.description}</span></span>}
        onChange={(name) => { if (name !== null) onChoose(name); }}
      />
      <p className={classes.about}>
        {preset?.description ?? "A preset fills in the settings of an algorithm."}
        {preset !== undefined && preset.paper !== "" && <> <Anchor href={preset.paper} target="_blank" rel="noreferrer" size="xs">Paper</Anchor></>}
        {undo !== null && <span className={classes.undo} role="status">It replaced your settings. <Anchor component="button" type="button" size="xs" onClick={undo}>Undo</Anchor></span>}
      </p>
    </div>
  );
}

/** Every word of the search is in the title, the name or the description. */
function matches({ name, title, description }: Preset, search: string): boolean {
  const text = `${name} ${title} ${description}`.toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
