import assert from "node:assert/strict";
import { test } from "vitest";

import { Problem } from "../api/problem.ts";
import type { IncomingSeries } from "../runs/metrics-store.ts";
import type { Frame, Listener } from "../stream/connection.ts";
import { LiveMetrics } from "./live-metrics.ts";

type Answer = { series: IncomingSeries[]; seq: number };

function open() {
  const requests: { names: readonly string[]; answer: (answer: Answer) => void; fail: (error: unknown) => void }[] = [];
  const timers: (() => void)[] = [];
  const subscriptions: { seq: number; listener: Listener }[] = [];
  let unsubscribed = 0;
  const live = new LiveMetrics({
    fetch: (names) => new Promise((answer, fail) => void requests.push({ names, answer, fail })),
    subscribe: (seq, listener) => {
      subscriptions.push({ seq, listener });
      return () => { unsubscribed += 1; };
    },
    later: (_, then) => {
      timers.push(then);
      return () => void timers.splice(timers.indexOf(then), 1);
    },
  });
  const settle = () => new Promise((resolve) => setTimeout(resolve, 0));
  return { live, requests, timers, subscriptions, settle, unsubscribed: () => unsubscribed };
}

const series = (name: string, value: number[]): IncomingSeries => ({ name, unit: "", axis: "step", source: "trainer", attempt: 1, x: value.map((_, index) => index + 1), value, at: value.map((_, index) => index) });
const frame = (x: number, values: Record<string, number>): Frame => ({ topic: "run:run_a", seq: x, type: "points", data: { axis: "step", source: "trainer", attempt: 1, x, values, at: x } });
const values = (live: LiveMetrics, name: string) => live.store.lines(name)[0]?.points.y;

test("a metric is fetched once, and the stream extends the wanted ones alone", async () => {
  const { live, requests, subscriptions, settle } = open();
  live.want(["reward/mean"]);
  live.want(["reward/mean"]);
  assert.equal(live.has("reward/mean"), false);
  requests[0]!.answer({ series: [series("reward/mean", [1, 2])], seq: 7 });
  await settle();
  assert.deepEqual([requests.length, live.has("reward/mean"), subscriptions[0]?.seq], [1, true, 7]);
  subscriptions[0]!.listener.onFrame(frame(3, { "reward/mean": 3, "loss/policy": 9 }));
  assert.deepEqual([values(live, "reward/mean"), live.store.names()], [[1, 2, 3], ["reward/mean"]]);
});

test("metrics wanted during a fetch are fetched after it, with one subscription", async () => {
  const { live, requests, subscriptions, settle } = open();
  live.want(["reward/mean"]);
  live.want(["loss/policy"]);
  requests[0]!.answer({ series: [series("reward/mean", [1])], seq: 1 });
  await settle();
  assert.deepEqual(requests.map(({ names }) => names), [["reward/mean"], ["loss/policy"]]);
  requests[1]!.answer({ series: [], seq: 2 });
  await settle();
  assert.deepEqual([subscriptions.length, live.has("loss/policy")], [1, true]);
});

test("after a gap everything wanted is fetched again", async () => {
  const { live, requests, subscriptions, settle } = open();
  live.want(["reward/mean"]);
  requests[0]!.answer({ series: [series("reward/mean", [1])], seq: 1 });
  await settle();
  const resumed: number[] = [];
  subscriptions[0]!.listener.onGap((seq) => void resumed.push(seq), 30);
  requests[1]!.answer({ series: [series("reward/mean", [1, 2, 3])], seq: 31 });
  await settle();
  assert.deepEqual([resumed, values(live, "reward/mean")], [[31], [1, 2, 3]]);
});

test("an outage is reported and retried; a run that does not exist is not", async () => {
  const outage = open();
  outage.live.want(["reward/mean"]);
  outage.requests[0]!.fail(new Problem({ status: 503, code: "unavailable", title: "Unavailable", detail: "" }));
  await outage.settle();
  assert.ok(outage.live.error);
  outage.timers[0]!();
  outage.requests[1]!.answer({ series: [], seq: 1 });
  await outage.settle();
  assert.equal(outage.live.error, null);

  const missing = open();
  missing.live.want(["reward/mean"]);
  missing.requests[0]!.fail(new Problem({ status: 404, code: "not_found", title: "Not found", detail: "" }));
  await missing.settle();
  assert.deepEqual([missing.timers.length, missing.requests.length], [0, 1]);
});

test("a closed run takes no answer and leaves its topic", async () => {
  const { live, requests, subscriptions, settle, unsubscribed } = open();
  live.want(["reward/mean"]);
  requests[0]!.answer({ series: [], seq: 1 });
  await settle();
  live.want(["loss/policy"]);
  live.close();
  requests[1]!.answer({ series: [series("loss/policy", [1])], seq: 2 });
  await settle();
  assert.deepEqual([unsubscribed(), subscriptions.length, values(live, "loss/policy")], [1, 1, undefined]);
});
