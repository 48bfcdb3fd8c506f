import assert from "node:assert/strict";
import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, test, vi } from "vitest";

import type { Run } from "../../api/schema.d.ts";
import { answerRequests, renderPage } from "../../testing/render.tsx";
import { LogsTab } from "./logs-tab.tsx";

vi.mock("../../stream/stream.ts", () => ({ useTopic: () => {} }));

const RUN = { id: "run_1" } as Run;
const LOGS = "GET /api/v1/runs/run_1/logs";
const file = (fields = {}) => ({ job: "job_t", name: "trainer", attempt: 1, incarnation: 0, bytes: 40, dropped_bytes: 0, removed_at: null, ...fields });
const part = (offset: number, text: string) => ({ body: { offset, next_offset: offset + text.length, text } });
const at = (offset: number, limit: number) => `${LOGS}?job=job_t&incarnation=0&offset=${offset}&limit=${limit}`;
const PART = 256 * 1024;
const TEXT = "step 1\nERROR one\nstep 2\nERROR two\nstep 3\n";

beforeEach(() => {
  localStorage.clear();
  // A virtual list shows nothing in a box without a height.
  vi.spyOn(HTMLElement.prototype, "offsetHeight", "get").mockReturnValue(18);
  vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(400);
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(800);
  return () => vi.restoreAllMocks();
});

test("the log is shown as text to its end, and the error buttons go from one error to the next", async () => {
  answerRequests({ [LOGS]: { body: { data: [file()] } }, [at(0, PART)]: part(0, `${TEXT}<b>bold</b>\n`), [at(TEXT.length + 12, PART)]: part(TEXT.length + 12, "") });
  renderPage(<LogsTab run={RUN} />);
  assert.ok(await screen.findByText("<b>bold</b>"));
  assert.equal(document.querySelector("b"), null);
  const previous = screen.getByTestId("previous-error");
  assert.equal(previous.textContent, "2 errors");
  await userEvent.click(previous);
  assert.equal(document.querySelector("[data-target=true]")?.textContent, "ERROR two");
  assert.equal((screen.getByLabelText("Follow") as HTMLInputElement).checked, false);
  await userEvent.click(previous);
  assert.equal(document.querySelector("[data-target=true]")?.textContent, "ERROR one");
});

test("a line that the server finds opens where it stands", async () => {
  const found = { job: "job_t", name: "trainer", attempt: 1, incarnation: 0, offset: 7, at: "2026-01-01T00:00:00Z", level: "ERROR", text: "ERROR one" };
  answerRequests({
    [LOGS]: { body: { data: [file({ bytes: 100_000 })] } },
    [at(100_000 - 65_536, PART)]: part(100_000 - 65_536, "end\n"),
    [at(100_000 - 65_532, PART)]: part(100_000 - 65_532, ""),
    [`${LOGS}/search?q=one&job=job_t&limit=200`]: { body: { data: [found], scanned_bytes: 100_000, next_cursor: null, has_more: false } },
    [at(0, 7)]: part(0, "step 1\n"),
    [at(7, 65_536)]: part(7, "ERROR one\nstep 2\n"),
    [at(24, PART)]: part(24, "step 3\n"),
  });
  renderPage(<LogsTab run={RUN} />);
  assert.ok(await screen.findByText("end"));
  assert.ok(screen.getByRole("button", { name: "Load earlier lines" }));
  await userEvent.type(screen.getByLabelText("Search the whole log"), "one");
  await userEvent.click(await within(await screen.findByTestId("found")).findByRole("button", { name: /ERROR one/ }));
  await waitFor(() => assert.equal(document.querySelector("[data-target=true]")?.textContent, "ERROR one"));
  assert.equal(screen.queryByText("end"), null);
});

test("an empty, a removed and a throttled log say so", async () => {
  answerRequests({ [LOGS]: { body: { data: [file({ bytes: 0, removed_at: "2026-01-01T00:00:00Z", dropped_bytes: 2_000 })] } }, [at(0, PART)]: part(0, "") });
  renderPage(<LogsTab run={RUN} />);
  assert.ok(await screen.findByText("This log was removed"));
  assert.ok(screen.getByText("2.0 kB were left out because the job wrote too fast."));
});
