import assert from "node:assert/strict";
import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import { answerRequests, renderPage } from "../testing/render.tsx";
import { PlaygroundPage } from "./playground-page.tsx";

const EDITOR = { "GET /api/v1/me": { body: { scopes: ["runs:read", "runs:write"] } } };
const VIEWER = { "GET /api/v1/me": { body: { scopes: ["runs:read"] } } };
const checkpoint = { id: "ckpt_1", run: { id: "run_1", name: "letters" }, step: 40, kind: "training", state: "STORED", metrics: {}, aliases: [] };
const LISTS = {
  "GET /api/v1/playgrounds?limit=20": { body: { data: [] } },
  "GET /api/v1/checkpoints?limit=200": { body: { data: [checkpoint] } },
  "GET /api/v1/models?limit=200": { body: { data: [] } },
};
const side = (given: object) => ({
  run: "run_chat", model: { id: "ckpt_1", kind: "checkpoint", name: "letters step 40" }, status: "QUEUED", ready: false, pending_reason: "", reason: "", reason_message: "",
  base_url: "/api/v1/runs/run_chat/playground", ...given,
});
const playground = (open: boolean, ...sides: object[]) => ({ "GET /api/v1/playgrounds/plg_1": { body: { id: "plg_1", open, sides, created_by: "ann", created_at: "2026-01-01T00:00:00Z" } } });
const JOBS = { "GET /api/v1/runs/run_chat/jobs": { body: { data: [{ node: { name: "north" }, slots: ["gpu-0"] }] } } };

const show = (path: string) => renderPage(<PlaygroundPage />, { path });

test("the checkpoint of a link is chosen, and its run's reward scores the replies", async () => {
  const run = { id: "run_1", name: "letters", kind: "rl", spec: { reward: { name: "exact_match", function: null } } };
  const sent = answerRequests({
    ...EDITOR, ...LISTS, ...playground(true, side({ pending_reason: "needs 1 slot" })), "GET /api/v1/checkpoints/ckpt_1": { body: checkpoint }, "GET /api/v1/runs/run_1": { body: run },
    "POST /api/v1/playgrounds": { status: 201, body: { id: "plg_1" } },
  });
  show("/playground?checkpoint=ckpt_1");
  assert.ok(await screen.findByLabelText("Score replies with the reward of letters"));
  await userEvent.setup().click(screen.getByRole("button", { name: "Open playground" }));
  await waitFor(() => assert.deepEqual(sent.find(({ method }) => method === "POST")?.body, { models: [{ checkpoint: "ckpt_1" }], idle_seconds: 600, max_total_tokens: 32_768, reward: run.spec.reward }));
  assert.ok(await screen.findByText("Waits for a slot"));
  assert.ok(screen.getByText(/needs 1 slot/));
});

test("without a model to chat with, the page says where one comes from", async () => {
  answerRequests({ ...EDITOR, ...LISTS, "GET /api/v1/checkpoints?limit=200": { body: { data: [{ ...checkpoint, state: "LOCAL" }] } } });
  show("/playground");
  assert.ok(await screen.findByText("Nothing to chat with yet"));
});

test("a viewer is shown the reason in the place of the form", async () => {
  answerRequests({ ...VIEWER, ...LISTS });
  show("/playground");
  assert.ok(await screen.findByText(/lacks the permission runs:write/));
  assert.equal(screen.queryByRole("button", { name: "Open playground" }), null);
});

test("a side that was closed for being idle says so, and the same models can be opened again", async () => {
  answerRequests({ ...EDITOR, ...JOBS, ...playground(false, side({ status: "SUCCEEDED", reason: "completed" })) });
  show("/playground?id=plg_1");
  assert.ok(await screen.findByText("Closed because it was idle"));
  assert.ok(await screen.findByText("Was on north gpu-0"));
  assert.equal(screen.getByRole("link", { name: "Open it again" }).getAttribute("href"), "/playground?checkpoint=ckpt_1");
  assert.equal(screen.queryByTestId("composer"), null);
});

test("a side whose engine failed says so with its log, and one that a run displaced says when to try again", async () => {
  const failed = side({ status: "FAILED", reason: "engine_failed", reason_message: "the engine ran out of memory" });
  const displaced = side({ run: "run_other", status: "STOPPED", reason: "preempted" });
  answerRequests({ ...EDITOR, ...JOBS, "GET /api/v1/runs/run_other/jobs": { body: { data: [] } }, ...playground(false, failed, displaced) });
  show("/playground?id=plg_1");
  assert.ok(await screen.findByText(/the engine ran out of memory/));
  assert.equal(screen.getByRole("link", { name: "Its log" }).getAttribute("href"), "/runs/run_chat?tab=logs");
  assert.ok(screen.getByText("Ended for a run"));
  assert.ok(await screen.findByText("Never had a slot"));
});

test("a playground that does not exist is said below the heading of the page", async () => {
  answerRequests({ ...EDITOR, "GET /api/v1/playgrounds/plg_1": { status: 404, body: { title: "Not Found", status: 404, code: "not_found", detail: "there is no playground 'plg_1'" } } });
  show("/playground?id=plg_1");
  assert.ok(await screen.findByText("there is no playground 'plg_1'"));
  assert.ok(screen.getByRole("heading", { level: 1, name: "Playground" }));
});

test("a playground that cannot be opened says why, and the choice stays", async () => {
  const refusal = { status: 409, body: { title: "Conflict", status: 409, code: "too_many_playgrounds", detail: "the project has 4 open playgrounds; stop one first" } };
  answerRequests({ ...EDITOR, ...LISTS, "GET /api/v1/checkpoints/ckpt_1": { body: checkpoint }, "GET /api/v1/runs/run_1": { body: { id: "run_1", name: "letters", kind: "sft", spec: {} } }, "POST /api/v1/playgrounds": refusal });
  show("/playground?checkpoint=ckpt_1");
  const open = await screen.findByRole<HTMLButtonElement>("button", { name: "Open playground" });
  await waitFor(() => assert.equal(open.disabled, false));
  await userEvent.setup().click(open);
  assert.ok(await screen.findByText(/stop one first/));
  assert.match(screen.getByRole<HTMLInputElement>("combobox", { name: /^Model/ }).value, /letters/);
});

test("a message that a side refuses is an error in its conversation, and can be sent again", async () => {
  const status = { body: { ready: true, idle_seconds: 600, released_in_seconds: 590, scores: false } };
  const away = { status: 503, body: { title: "Service Unavailable", code: "node_unavailable", detail: "the node is away; try again" } };
  const sent = answerRequests({
    ...EDITOR, ...JOBS, ...playground(true, side({ status: "RUNNING", ready: true })),
    "GET /api/v1/runs/run_chat/playground": status, "POST /api/v1/runs/run_chat/playground/chat/completions": away,
  });
  show("/playground?id=plg_1");
  const user = userEvent.setup();
  await screen.findByText(/Released after/);
  await user.type(screen.getByLabelText("Message"), "hello{Enter}");
  assert.ok(await screen.findByText("The node is not reachable"));
  await user.click(screen.getByRole("button", { name: "Try again" }));
  await waitFor(() => assert.equal(sent.filter(({ url }) => url.endsWith("/chat/completions")).length, 2));
  const bodies = sent.filter(({ url }) => url.endsWith("/chat/completions")).map(({ body }) => (body as { messages: unknown }).messages);
  assert.deepEqual(bodies[1], [{ role: "user", content: "hello" }], "the failed turn is not part of the next request");
});
