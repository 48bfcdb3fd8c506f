import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "vitest";

const AA = 4.5; // WCAG 2.2, success criterion 1.4.3, for text of any size
const TEXT = ["ink", "ink-soft", "ink-faint", "accent", "good", "bad", "warn", "info"];
const BACKGROUNDS = ["page", "panel", "panel-sunken", "accent-soft"];
const PAIRS = [...TEXT.flatMap((text) => BACKGROUNDS.map((background) => [text, background] as const)), ["bad", "bad-soft"], ["warn", "warn-soft"]] as const;

/** Relative luminance of #rrggbb, as WCAG defines it. */
function luminance(color: string): number {
  const [red, green, blue] = [1, 3, 5].map((start) => {
    const channel = parseInt(color.slice(start, start + 2), 16) / 255;
    return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

function contrast(one: string, other: string): number {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light! + 0.05) / (dark! + 0.05);
}

const [light, dark] = readFileSync(join(import.meta.dirname, "tokens.css"), "utf8")
  .split("}")
  .map((block) => new Map([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name, color]) => [name!, color!])));

for (const [theme, colors] of Object.entries({ light: light!, dark: dark! })) {
  test(`text of the ${theme} theme is readable on every background`, () => {
    const pale = PAIRS.filter(([text, background]) => contrast(colors.get(text)!, colors.get(background)!) < AA);
    assert.deepEqual(pale, []);
  });
}

test("contrast is that of the standard's examples", () => {
  assert.equal(contrast("#000000", "#ffffff"), 21);
  assert.equal(contrast("#767676", "#ffffff").toFixed(2), "4.54");
});
