import assert from "node:assert/strict";
import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { renderPage } from "../testing/render.tsx";
import { CodeEditor } from "./code-editor.tsx";

test("an error opens its line, and one without a line is only listed", async () => {
  renderPage(<CodeEditor source={"import re\nimport numpy\n"} errors={[{ line: 2, message: "no module 'numpy'" }, { line: null, message: "no function score" }]} label="Source" onChange={() => {}} />);
  const user = userEvent.setup();
  await user.click(screen.getByRole("button", { name: "Line 2" }));
  const area = screen.getByRole<HTMLTextAreaElement>("textbox", { name: "Source" });
  assert.equal(document.activeElement, area);
  assert.equal(area.value.slice(area.selectionStart, area.selectionEnd), "import numpy");
  assert.equal(area.getAttribute("aria-invalid"), "true");
  assert.equal(screen.getAllByRole("button").length, 1);
  screen.getByText("no function score");
});
