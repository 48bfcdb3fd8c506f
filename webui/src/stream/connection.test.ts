import assert from "node:assert/strict";
import { test } from "vitest";

import { StreamConnection, type Frame, type WebSocketLike } from "./connection.ts";

/** A simulated browser: the test opens and closes the sockets and sends the frames. */
function simulation() {
  const sockets: (WebSocketLike & { sent: Record<string, unknown>[] })[] = [];
  const timers = new Map<number, { due: number; then: () => void }>();
  let now = 1_000;
  let nextTimer = 0;
  const connection = new StreamConnection({
    open: () => {
      const socket = {
        sent: [] as Record<string, unknown>[],
        send(text: string) { this.sent.push(JSON.parse(text) as Record<string, unknown>); },
        close() {},
        onopen: null, onclose: null, onmessage: null,
      } as WebSocketLike & { sent: Record<string, unknown>[] };
      sockets.push(socket);
      return socket;
    },
    now: () => now,
    after: (milliseconds, then) => {
      const id = nextTimer++;
      timers.set(id, { due: now + milliseconds, then });
      return () => timers.delete(id);
    },
  });
  return {
    connection,
    sockets,
    newest: () => sockets.at(-1)!,
    frame: (topic: string, seq: number, type = "points", data: unknown = {}) =>
      sockets.at(-1)!.onmessage?.({ data: JSON.stringify({ topic, seq, type, data }) }),
    pass: (milliseconds: number) => {
      now += milliseconds;
      for (const [id, timer] of [...timers]) {
        if (timer.due <= now && timers.delete(id)) timer.then();
      }
    },
  };
}

function recordingListener() {
  const seen: number[] = [];
  return { seen, onFrame: (frame: Frame) => void seen.push(frame.seq), onGap: () => assert.fail("no gap expected") };
}

test("a reconnect resumes after the last frame and repeats nothing", () => {
  const { connection, newest, frame, pass, sockets } = simulation();
  const listener = recordingListener();
  connection.subscribe("run:1", 10, listener);
  newest().onopen?.();
  assert.deepEqual(newest().sent, [{ op: "subscribe", topic: "run:1", after_seq: 10 }]);
  frame("run:1", 11);
  frame("run:1", 12);
  newest().onclose?.({ code: 1006 });
  assert.equal(connection.getState().status, "reconnecting");
  assert.equal(connection.getState().staleSince, 1_000);
  pass(2_000);
  assert.equal(sockets.length, 2);
  newest().onopen?.();
  assert.deepEqual(newest().sent, [{ op: "subscribe", topic: "run:1", after_seq: 12 }]);
  frame("run:1", 12);
  frame("run:1", 13);
  assert.deepEqual(listener.seen, [11, 12, 13]);
  assert.equal(connection.getState().status, "live");
  assert.equal(connection.getState().staleSince, null);
});

test("a gap triggers a refetch and the stream resumes after it", () => {
  const { connection, newest, frame } = simulation();
  const seen: number[] = [];
  let resume: (seq: number) => void = () => assert.fail("no gap was reported");
  connection.subscribe("run:1", 1, { onFrame: (f) => void seen.push(f.seq), onGap: (resumeAfter) => { resume = resumeAfter; } });
  newest().onopen?.();
  frame("run:1", 50, "gap", { from: 2, to: 50 });
  frame("run:1", 51);
  assert.deepEqual(seen, []);
  resume(50);
  assert.deepEqual(newest().sent.at(-1), { op: "subscribe", topic: "run:1", after_seq: 50 });
  frame("run:1", 51);
  assert.deepEqual(seen, [51]);
});

test("two listeners of one topic each get the frames that they miss", () => {
  const { connection, newest, frame } = simulation();
  const early = recordingListener();
  const late = recordingListener();
  connection.subscribe("runs", 5, early);
  newest().onopen?.();
  frame("runs", 6);
  connection.subscribe("runs", 4, late);
  assert.deepEqual(newest().sent.at(-1), { op: "subscribe", topic: "runs", after_seq: 4 });
  frame("runs", 5);
  frame("runs", 6);
  frame("runs", 7);
  assert.deepEqual(early.seen, [6, 7]);
  assert.deepEqual(late.seen, [5, 6, 7]);
});

test("a silent connection is closed and reopened", () => {
  const { connection, newest, pass, sockets } = simulation();
  connection.subscribe("pool", null, recordingListener());
  newest().onopen?.();
  pass(46_000);
  assert.equal(connection.getState().status, "reconnecting");
  pass(2_000);
  assert.equal(sockets.length, 2);
});

test("a rejected session is reported", () => {
  const { connection, newest } = simulation();
  let rejections = 0;
  connection.onUnauthenticated = () => { rejections += 1; };
  connection.subscribe("pool", null, recordingListener());
  newest().onclose?.({ code: 4401 });
  assert.equal(rejections, 1);
});

test("data is stale while the server is silent and current again with its next message", () => {
  const { connection, newest, frame, pass } = simulation();
  connection.subscribe("run:1", 10, recordingListener());
  newest().onopen?.();
  pass(19_000);
  assert.deepEqual([connection.getState().status, connection.getState().staleSince], ["live", null]);
  pass(2_000);
  assert.deepEqual([connection.getState().status, connection.getState().staleSince], ["live", 1_000]);
  frame("", 0, "ping");
  assert.equal(connection.getState().staleSince, null);
  pass(46_000);
  assert.equal(connection.getState().status, "reconnecting");
});

test("a connection that a hung server never answers is given up and tried again", () => {
  const { connection, newest, pass, sockets } = simulation();
  connection.subscribe("run:1", 10, recordingListener());
  newest().onopen?.();
  pass(46_000);
  pass(2_000);
  assert.equal(sockets.length, 2);
  pass(16_000); // the second connection does not open
  assert.deepEqual([connection.getState().status, connection.getState().staleSince], ["reconnecting", 1_000]);
  pass(4_000);
  assert.equal(sockets.length, 3);
  newest().onopen?.();
  assert.deepEqual(newest().sent, [{ op: "subscribe", topic: "run:1", after_seq: 10 }]);
  assert.deepEqual([connection.getState().status, connection.getState().staleSince], ["live", null]);
});
