import { useRef, useState, type FocusEvent, type KeyboardEvent } from "react";

import type { Preset } from "../api/schema.d.ts";
import classes from "./preset-picker.module.css";
import { nextInGroup } from "./roving-focus.ts";

type Props = { presets: Preset[]; chosen: string; onChoose: (preset: Preset) => void };

/**
 * The presets as one tab stop. Arrows move the focus, Space and Enter choose: a choice replaces fields of the spec, so it
 * does not follow the focus.
 */
export function PresetPicker({ presets, chosen, onChoose }: Props) {
  const group = useRef<HTMLDivElement>(null);
  const [focused, setFocused] = useState<string | null>(null); // Tab leaves the group from here, and enters it at the choice
  const buttons = () => [...(group.current?.querySelectorAll<HTMLButtonElement>("[role=radio]") ?? [])];
  const onKeyDown = (event: KeyboardEvent) => {
    const all = buttons();
    const next = nextInGroup(event.key, all.indexOf(event.target as HTMLButtonElement), all.length);
    if (next === null) return;
    event.preventDefault();
    all[next]?.focus();
  };
  const onBlur = (event: FocusEvent) => {
    if (!group.current?.contains(event.relatedTarget)) setFocused(null);
  };
  const stop = [focused, chosen].find((name) => presets.some((preset) => preset.name === name)) ?? presets[0]?.name;
  return (
    <div ref={group} className={classes.presets} role="radiogroup" aria-label="Preset" onKeyDown={onKeyDown} onBlur={onBlur}>
      {presets.map((preset) => (
        <button
          key={preset.name} type="button" role="radio" aria-checked={preset.name === chosen} className={classes.preset} data-preset={preset.name}
          tabIndex={preset.name === stop ? 0 : -1} onFocus={() => setFocused(preset.name)} onClick={() => onChoose(preset)}
        >
          <strong>{preset.title}</strong>
          <span>{preset.description}</span>
        </button>
      ))}
    </div>
  );
}
