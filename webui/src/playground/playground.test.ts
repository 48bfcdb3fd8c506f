import assert from "node:assert/strict";
import { test } from "vitest";

import type { Playground } from "../api/schema.d.ts";
import { begun, changed, chatBody, DEFAULT_SAMPLING, isBusy, messagesOf, withTurn } from "./conversation.ts";
import { modelsOfUrl, optionOf, refOf } from "./models-of-url.ts";
import { sideProblem } from "./playground-api.ts";
import { partsOf, splitEvents } from "./reply-stream.ts";
import { againPath, hasSideEnded, releaseText, sideNotice } from "./side-state.ts";

const turn = (id: number, given: Partial<ReturnType<typeof begun>> = {}) => ({ ...begun(id, `question ${id}`, ""), ...given });

test("an event that arrives in two pieces is read once, when it is whole", () => {
  const first = splitEvents('data: {"a": 1}\n\ndata: {"b"');
  assert.deepEqual(first, { events: ['data: {"a": 1}'], rest: 'data: {"b"' });
  assert.deepEqual(splitEvents(`${first.rest}: 2}\r\n\r\n`), { events: ['data: {"b": 2}'], rest: "" });
});

test("a chunk adds its text, its end and its tokens; the rest of the stream adds nothing", () => {
  assert.deepEqual(partsOf('data: {"choices": [{"delta": {"role": "assistant"}}]}'), []);
  assert.deepEqual(partsOf('data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": null}]}'), [{ kind: "text", text: "hi" }]);
  assert.deepEqual(partsOf('data: {"choices": [{"delta": {}, "finish_reason": "length"}], "usage": {"completion_tokens": 7}}'), [{ kind: "finish", reason: "length" }, { kind: "usage", tokens: 7 }]);
  assert.deepEqual([partsOf("data: [DONE]"), partsOf(": ping")], [[], []]);
});

test("an error in the middle of a stream is an error of the reply", () => {
  assert.deepEqual(partsOf('data: {"error": {"message": "the node is gone"}}'), [{ kind: "error", message: "the node is gone" }]);
  assert.equal(partsOf("data: <html>")[0]?.kind, "error");
});

test("a new question is sent with the replies before it, without those that failed", () => {
  const turns = [turn(1, { reply: "one", state: "done" }), turn(2, { reply: "half", state: "failed" }), turn(3, { reply: "cut", state: "stopped" }), turn(4, { state: "stopped" })];
  assert.deepEqual(messagesOf(turns, "be short", "next").map(({ role, content }) => `${role}: ${content}`), ["system: be short", "user: question 1", "assistant: one", "user: question 3", "assistant: cut", "user: next"]);
});

test("empty sampling fields are left to the engine", () => {
  const body = chatBody([], { ...DEFAULT_SAMPLING, temperature: 0, topP: "" });
  assert.deepEqual(body, { messages: [], stream: true, stream_options: { include_usage: true }, temperature: 0, max_tokens: 512 });
});

test("a reply grows in its own turn of its own side", () => {
  let all = withTurn(withTurn({}, "run_a", turn(1)), "run_b", turn(2));
  all = changed(all, "run_a", 1, ({ reply }) => ({ reply: `${reply}x` }));
  assert.deepEqual([all["run_a"]![0]!.reply, all["run_b"]![0]!.reply], ["x", ""]);
  assert.equal(isBusy(all), true);
  assert.equal(isBusy(changed(changed(all, "run_a", 1, () => ({ state: "done" })), "run_b", 2, () => ({ state: "failed" }))), false);
});

const side = { status: "RUNNING" as const, ready: false, pending_reason: "", reason: "", reason_message: "" };

test("a side says what it waits for, and how it ended with the way out", () => {
  assert.equal(sideNotice({ ...side, ready: true }), null);
  assert.deepEqual(sideNotice({ ...side, status: "QUEUED", pending_reason: "needs 1 slot" }), { tone: "wait", title: "Waits for a slot", text: "needs 1 slot" });
  assert.equal(sideNotice({ ...side, pending_reason: "the engine is starting" })?.title, "Starts");
  assert.match(sideNotice({ ...side, status: "SUCCEEDED", reason: "completed" })!.text, /Open it again/);
  assert.match(sideNotice({ ...side, status: "STOPPED", reason: "preempted" })!.text, /A run in the queue needed the slot/);
  assert.equal(sideNotice({ ...side, status: "FAILED", reason: "engine_crashed", reason_message: "out of memory" })?.text, "out of memory");
  assert.equal(hasSideEnded({ status: "STOPPING" }), false);
});

test("the release is counted down and does not go below zero", () => {
  assert.equal(releaseText(null), "");
  assert.equal(releaseText(599.6), "Released after 10 min 00 s without a message");
  assert.equal(releaseText(-3), "The slot is being released");
});

test("a playground that ended is opened again with the same models", () => {
  const models = [{ id: "ckpt_1", kind: "checkpoint", name: "a" }, { id: "mdl_1", kind: "base_model", name: "b" }];
  const path = againPath({ sides: models.map((model) => ({ model })) } as unknown as Playground);
  assert.equal(path, "/playground?checkpoint=ckpt_1&base_model=mdl_1");
  const refs = modelsOfUrl(new URLSearchParams(path.split("?")[1]));
  assert.deepEqual(refs.map(optionOf), ["checkpoint:ckpt_1", "base_model:mdl_1"]);
  assert.deepEqual(modelsOfUrl(new URLSearchParams("id=x&checkpoint=&checkpoint=a&checkpoint=b&checkpoint=c")).map(({ id }) => id), ["a", "b"]);
  assert.equal(refOf("run:x"), null);
});

test("an error of the job and one of the control plane are both said in words", () => {
  const job = sideProblem(422, "", JSON.stringify({ error: { message: "the box is missing", code: "no_score" } }));
  assert.deepEqual([job.code, job.title, job.message], ["no_score", "The reward gave no score", "the box is missing"]);
  const plane = sideProblem(503, "", JSON.stringify({ code: "node_unavailable", title: "Service Unavailable", detail: "try again", request_id: "req_1" }));
  assert.deepEqual([plane.code, plane.title, plane.message, plane.requestId], ["node_unavailable", "The node is not reachable", "try again", "req_1"]);
  assert.equal(sideProblem(502, "Bad Gateway", "<html>").code, "unreadable");
});
