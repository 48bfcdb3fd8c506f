import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "vitest";

const SOURCE = join(import.meta.dirname, "..");
const SMALLEST_PIXELS = 12;
const PIXELS_PER_REM = 16;

/** Text sizes in a style sheet, a style object, the smallest of the theme, or the font of a canvas. */
const SIZES = /(?:font-size:|font:[^;]*?|fontSize: "|font = [`"]?[^`";]*?|fontSizes: \{ xs: ")\s*(\d*\.?\d+)(px|rem)\b/g;

test("no text is smaller than 12 pixels", () => {
  const files = readdirSync(SOURCE, { recursive: true, encoding: "utf8" }).filter((name) => /\.(css|tsx?)$/.test(name) && !/\.(d|test)\.ts$/.test(name));
  let found = 0;
  const small: string[] = [];
  for (const file of files) {
    for (const [text, size, unit] of readFileSync(join(SOURCE, file), "utf8").matchAll(SIZES)) {
      found += 1;
      if (Number(size) * (unit === "rem" ? PIXELS_PER_REM : 1) < SMALLEST_PIXELS) small.push(`${file}: ${text}`);
    }
  }
  assert.ok(found > 30, `only ${found} sizes were found`);
  assert.deepEqual(small, []);
});
