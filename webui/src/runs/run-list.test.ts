import assert from "node:assert/strict";
import { test } from "vitest";

import { chosenColumns, COLUMNS, DEFAULT_COLUMNS, tableWidth, toggled } from "./run-columns.ts";
import { ATTENTION, chips, isFiltered, listQuery, nextSort, sortDirection, withQuickFilter, without } from "./run-list-view.ts";
import { isPausedByError, reasonOf } from "./run-reason.ts";
import { changedTags, forEachRun, moveActive, stopPlan, toggleRow } from "./run-selection.ts";
import { sparkline } from "./sparkline.ts";
import { isTyping } from "./use-list-keys.ts";

const url = (text: string) => new URLSearchParams(text);

test("the URL is the query of the list, without what is no filter", () => {
  assert.deepEqual(listQuery(url("status=RUNNING&tag=a&tag=b&metric=reward/mean>=0.5&sort=-reward&tab=x&name=")), {
    status: "RUNNING", sort: "-reward", tag: ["a", "b"], metric: ["reward/mean>=0.5"],
  });
});

test("a filter without a control is a chip that can be removed alone", () => {
  const search = url("status=RUNNING&tag=a&tag=b&author=bob&created_after=2026-01-01T00:00:00Z&sort=name");
  assert.deepEqual(chips(search).map((chip) => chip.label), ["author: bob", "created after: 2026-01-01T00:00:00Z", "#a", "#b"]);
  assert.deepEqual(without(search, "tag", "a").getAll("tag"), ["b"]);
  assert.equal(without(search, "tag", "a").get("status"), "RUNNING");
});

test("the attention filter selects by condition and replaces a status", () => {
  const search = withQuickFilter(url("status=FAILED&tag=a"), ATTENTION);
  assert.deepEqual(listQuery(search), { condition: ATTENTION, tag: ["a"] });
  assert.deepEqual(listQuery(withQuickFilter(search, "FAILED")), { status: "FAILED", tag: ["a"] });
  assert.deepEqual(listQuery(withQuickFilter(search, "")), { tag: ["a"] });
  assert.ok(ATTENTION.split(",").includes("NEEDS_ATTENTION"));
});

test("a sort order is no filter", () => {
  assert.equal(isFiltered(url("sort=-reward")), false);
  assert.equal(isFiltered(url("sort=-reward&kind=rl")), true);
});

test("clicks on a header go through both directions and back to newest first", () => {
  assert.deepEqual(["", "-reward", "reward", "name"].map((sort) => nextSort(sort, "reward", true)), ["-reward", "reward", "", "-reward"]);
  assert.deepEqual(["", "name", "-name"].map((sort) => nextSort(sort, "name", false)), ["name", "-name", ""]);
  assert.deepEqual(["reward", "-reward", "-rewards"].map((sort) => sortDirection(sort, "reward")), ["ascending", "descending", "none"]);
});

test("chosen columns keep their order and survive a choice that no version knows", () => {
  assert.deepEqual(chosenColumns(undefined).map((column) => column.id), DEFAULT_COLUMNS);
  assert.deepEqual(chosenColumns(["tags", "gone", "status"]).map((column) => column.id), ["status", "tags"]);
  assert.deepEqual(chosenColumns([]), []);
  assert.deepEqual(toggled(["tags"], "status"), ["status", "tags"]);
  assert.deepEqual(toggled(["status", "tags"], "tags"), ["status"]);
  assert.ok(tableWidth(chosenColumns(COLUMNS.map((column) => column.id))) > tableWidth(chosenColumns(undefined)));
});

test("the default columns fit a window of 1440 pixels beside the navigation", () => {
  assert.ok(tableWidth(chosenColumns(undefined)) <= 1440 - 198 - 2 * 22 - 2);
});

test("Shift selects or clears a range", () => {
  const ids = ["a", "b", "c", "d"];
  const one = toggleRow(new Set(), ids, 1, null);
  assert.deepEqual([...one], ["b"]);
  assert.deepEqual([...toggleRow(one, ids, 3, 1)], ["b", "c", "d"]);
  assert.deepEqual([...toggleRow(new Set(ids), ids, 0, 2)], ["d"]);
  assert.deepEqual([...toggleRow(one, ids, 9, null)], ["b"]);
});

test("j and k move within the list", () => {
  assert.equal(moveActive(null, "j", 3), 0);
  assert.equal(moveActive(null, "k", 3), 2);
  assert.equal(moveActive(2, "j", 3), 2);
  assert.equal(moveActive(0, "k", 3), 0);
  assert.equal(moveActive(null, "j", 0), null);
});

test("keys of the list do not act while one types or a browser shortcut is pressed", () => {
  const plain = { metaKey: false, ctrlKey: false, altKey: false };
  for (const target of [{ tagName: "INPUT", type: "search" }, { tagName: "TEXTAREA" }, { tagName: "DIV", isContentEditable: true }]) assert.equal(isTyping(plain, target), true);
  for (const target of [null, { tagName: "BODY" }, { tagName: "A" }, { tagName: "INPUT", type: "checkbox" }]) assert.equal(isTyping(plain, target), false);
  assert.equal(isTyping({ ...plain, ctrlKey: true }, { tagName: "BODY" }), true);
});

test("a bulk stop cancels queued runs and leaves ended ones and drafts alone", () => {
  const runs = (["RUNNING", "QUEUED", "SUCCEEDED", "STOPPING", "DRAFT", "PAUSED"] as const).map((status) => ({ id: status, status }));
  const { stop, cancel, left } = stopPlan(runs);
  assert.deepEqual([stop, cancel, left].map((part) => part.map((run) => run.id)), [["RUNNING", "PAUSED"], ["QUEUED"], ["SUCCEEDED", "STOPPING", "DRAFT"]]);
});

test("tags are added and removed, and an unchanged run is not written", () => {
  assert.deepEqual(changedTags(["a", "b"], ["c", "a"], ["b"]), ["a", "c"]);
  assert.equal(changedTags(["a"], ["a"], ["z"]), null);
  assert.deepEqual(changedTags(["a"], ["b"], ["a"]), ["b"]);
});

test("one failing run does not keep the others from the action", async () => {
  const done: string[] = [];
  let [running, most] = [0, 0];
  const failures = await forEachRun(["a", "b", "c", "d", "e"], async (run) => {
    running += 1;
    most = Math.max(most, running);
    await Promise.resolve();
    running -= 1;
    if (run === "b") throw new Error("refused");
    done.push(run);
  }, 2);
  assert.deepEqual(done.sort(), ["a", "c", "d", "e"]);
  assert.deepEqual(failures.map(({ run, error }) => [run, String(error)]), [["b", "Error: refused"]]);
  assert.equal(most, 2);
});

const run = { status: "RUNNING" as const, conditions: [] as string[], reason: "", reason_message: "", pending_reason: "", queue_position: null, progress: null };

test("a run paused by reward errors shows its cause as an error", () => {
  const paused = { ...run, status: "PAUSED" as const, conditions: ["NEEDS_ATTENTION"], reason: "reward_error_rate", reason_message: "60 % of rewards failed: KeyError" };
  assert.equal(isPausedByError(paused), true);
  assert.deepEqual(reasonOf(paused), { text: "60 % of rewards failed: KeyError", tone: "bad" });
  assert.equal(reasonOf({ ...paused, reason_message: "" })?.text, "Reward error rate");
  assert.equal(isPausedByError({ ...paused, conditions: [] }), false);
  assert.equal(reasonOf({ ...run, status: "PAUSED" }), null);
  const spent = { ...run, status: "PAUSED" as const, reason: "budget_exhausted", reason_message: "team red has used 12 of its 10 GPU-hours" };
  assert.deepEqual(reasonOf(spent), { text: "team red has used 12 of its 10 GPU-hours", tone: "warn" });
  assert.equal(reasonOf({ ...paused, status: "PAUSING", conditions: [] })?.tone, "warn");
  assert.equal(reasonOf({ ...paused, status: "PAUSING", conditions: [], reason: "paused_by_user" }), null);
});

test("a run that waits says why and where", () => {
  const queued = { ...run, status: "QUEUED" as const, pending_reason: "needs 2 slots" };
  assert.deepEqual(reasonOf({ ...queued, queue_position: 3 }), { text: "#3 in the queue: needs 2 slots", tone: "neutral" });
  assert.equal(reasonOf(queued)?.text, "needs 2 slots");
  assert.equal(reasonOf({ ...run, conditions: ["GAP", "UNRESPONSIVE"] })?.text, "Its node does not respond");
  assert.equal(reasonOf(run), null);
});

test("a sparkline fills its box and ends at the newest point", () => {
  const line = sparkline({ step: [10, 20, 30], reward: [0, 1, 0.5] }, 106, 26)!;
  assert.equal(line.path, "M3 23L53 3L103 13");
  assert.deepEqual(line.end, { x: 103, y: 13 });
  assert.deepEqual([line.first, line.last], [0, 0.5]);
});

test("a reward that is not finite breaks the line; a constant one lies in the middle", () => {
  assert.equal(sparkline({ step: [0, 1, 2, 3], reward: [1, null, 1, 1] }, 106, 26)!.path, "M3 13M69.7 13L103 13");
  assert.equal(sparkline({ step: [5], reward: [2] }, 106, 26)!.path, "M3 13");
  assert.equal(sparkline({ step: [], reward: [] }, 106, 26), null);
  assert.equal(sparkline({ step: [1], reward: [null] }, 106, 26), null);
});
