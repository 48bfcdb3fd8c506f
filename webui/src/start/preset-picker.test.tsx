import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Preset } from "../api/schema.d.ts";
import { renderPage } from "../testing/render.tsx";
import { PresetPicker } from "./preset-picker.tsx";

const PRESETS = ["grpo", "dapo", "rloo"].map((name) => ({ name, title: name.toUpperCase(), description: `${name} of its paper` })) as Preset[];

function rendered(chosen = "dapo") {
  const choices: string[] = [];
  renderPage(<PresetPicker presets={PRESETS} chosen={chosen} onChoose={(preset) => choices.push(preset.name)} />);
  return choices;
}

test("the presets are one tab stop that begins at the chosen preset", async () => {
  rendered();
  const user = userEvent.setup();
  await user.tab();
  assert.equal(document.activeElement?.getAttribute("data-preset"), "dapo");
  await user.tab();
  assert.equal(document.activeElement, document.body);
});

test("arrows move the focus, and only Enter or Space choose", async () => {
  const choices = rendered();
  const user = userEvent.setup();
  await user.tab();
  await user.keyboard("{ArrowRight}");
  assert.equal(document.activeElement?.getAttribute("data-preset"), "rloo");
  assert.deepEqual(choices, []);
  await user.keyboard("{Enter}");
  assert.deepEqual(choices, ["rloo"]);
});

test("the chosen preset is the checked one", () => {
  rendered("grpo");
  const checked = screen.getAllByRole("radio").filter((radio) => radio.getAttribute("aria-checked") === "true");
  assert.deepEqual(checked.map((radio) => radio.getAttribute("data-preset")), ["grpo"]);
});
