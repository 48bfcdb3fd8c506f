import assert from "node:assert/strict";
import { test } from "vitest";

import { joinCommand } from "./join-command.ts";

test("the command names the server and the device, and keeps the token out of the agent's arguments", () => {
  const [file, ...agent] = joinCommand("jt_secret", "cpu", "https://oolong.example").split("\n");
  assert.match(file!, /umask 077.*jt_secret/);
  assert.doesNotMatch(agent.join(" "), /jt_secret/);
  assert.match(agent.join(" "), /--server https:\/\/oolong.example .*--device cpu .*node-python --device cpu/);
});
