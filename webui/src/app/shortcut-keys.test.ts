import assert from "node:assert/strict";
import { test } from "vitest";

import { PAGES, pageOf, START } from "./pages.ts";
import { actionOf, commandKey } from "./shortcut-keys.ts";

const paths = { p: "/pool" };
const anywhere = { afterG: false, isOverDialog: false, paths };
const key = (name: string, changes = {}) => ({ key: name, metaKey: false, ctrlKey: false, altKey: false, shiftKey: false, ...changes });
const BODY = { tagName: "BODY" };

test("keys open the palette, the search, the help and pages", () => {
  assert.equal(actionOf(key("k", { ctrlKey: true }), BODY, anywhere), "palette");
  assert.equal(actionOf(key("k", { metaKey: true }), BODY, anywhere), "palette");
  assert.equal(actionOf(key("/"), BODY, anywhere), "search");
  assert.equal(actionOf(key("?", { shiftKey: true }), BODY, anywhere), "help");
  assert.equal(actionOf(key("g"), BODY, anywhere), "await-page");
  assert.deepEqual(actionOf(key("p"), BODY, { ...anywhere, afterG: true }), { open: "/pool" });
});

test("a letter alone, another letter after g, and the browser's own shortcuts do nothing", () => {
  assert.equal(actionOf(key("p"), BODY, anywhere), null);
  assert.equal(actionOf(key("z"), BODY, { ...anywhere, afterG: true }), null);
  assert.equal(actionOf(key("p", { ctrlKey: true }), BODY, { ...anywhere, afterG: true }), null);
  assert.equal(actionOf(key("k", { ctrlKey: true, shiftKey: true }), BODY, anywhere), null);
});

test("no shortcut works while somebody types, or behind a dialog", () => {
  const all = [key("k", { ctrlKey: true }), key("/"), key("?"), key("g")];
  for (const target of [{ tagName: "INPUT", type: "text" }, { tagName: "TEXTAREA" }, { tagName: "SELECT" }, { tagName: "DIV", isContentEditable: true }]) {
    assert.deepEqual(all.map((one) => actionOf(one, target, anywhere)), [null, null, null, null]);
  }
  assert.deepEqual(all.map((one) => actionOf(one, BODY, { ...anywhere, isOverDialog: true })), [null, null, null, null]);
});

test("each page has a key of its own, and a path belongs to one page", () => {
  const keys = [...PAGES, START].map((page) => page.key);
  assert.equal(new Set(keys).size, keys.length);
  assert.equal(pageOf("/")?.label, "Home");
  assert.equal(pageOf("/runs/run_1")?.label, "Runs");
  assert.equal(pageOf("/nothing"), undefined);
});

test("the modifier has the name that the machine's keyboard shows", () => {
  assert.equal(commandKey("MacIntel"), "⌘");
  assert.equal(commandKey("Linux x86_64"), "Ctrl");
});
