import { useRovingIndex } from "@mantine/hooks";
import { useState, type FocusEvent } from "react";

import type { Preset } from "../api/schema.d.ts";
import classes from "./preset-picker.module.css";

type Props = { presets: Preset[]; chosen: string; onChoose: (preset: Preset) => void };

/**
 * The presets as one tab stop. Arrows move the focus, Space and Enter choose: a choice replaces fields of the spec, so it
 * does not follow the focus.
 */
export function PresetPicker({ presets, chosen, onChoose }: Props) {
  const [focused, setFocused] = useState<number | null>(null); // Tab leaves the group from here, and enters it at the choice
  const choice = Math.max(0, presets.findIndex((preset) => preset.name === chosen));
  const { getItemProps } = useRovingIndex({ total: presets.length, orientation: "both", focusedIndex: focused ?? choice, onFocusChange: setFocused });
  const onBlur = (event: FocusEvent) => {
    if (!event.currentTarget.contains(event.relatedTarget)) setFocused(null);
  };
  return (
    <div className={classes.presets} role="radiogroup" aria-label="Preset" onBlur={onBlur}>
      {presets.map((preset, index) => (
        <button
          {...getItemProps({ index, onClick: () => onChoose(preset) })}
          key={preset.name} type="button" role="radio" aria-checked={preset.name === chosen} className={classes.preset} data-preset={preset.name}
          onFocus={() => setFocused(index)}
        >
          <strong>{preset.title}</strong>
          <span>{preset.description}</span>
        </button>
      ))}
    </div>
  );
}
