import assert from "node:assert/strict";
import { test } from "vitest";

import type { Me, Member } from "../api/schema.d.ts";
import { isLastAdmin, memberActions, roleEffects, rolesToGive } from "./roles.ts";

const place = { project: "default", team: "red" };
const member = (username: string, project_role: Member["project_role"], team_role: Member["team_role"] = null): Member =>
  ({ id: `usr_${username}`, username, role: (team_role ?? project_role)!, project_role, team_role });
const me = (username: string, role: string, scopes: string[]): Me =>
  ({ user: { id: `usr_${username}`, username }, team: { id: "t", name: "red" }, project: { id: "p", name: "default" }, role, scopes, token: null, login: null });

test("removing the only role says that tokens are revoked and runs continue", () => {
  const effects = roleEffects(member("bob", "editor"), "project", null, place).join(" ");
  assert.match(effects, /bob loses access to default at once/);
  assert.match(effects, /tokens of default are revoked/);
  assert.match(effects, /Runs that they started continue/);
});

test("removing a role beside a higher one changes nothing here", () => {
  const bob: Member = { ...member("bob", "viewer", "admin"), role: "admin" };
  assert.deepEqual(roleEffects(bob, "project", null, place), ["bob stays admin here, because of the role in the team."]);
});

test("a lower role takes scopes from tokens, and a higher one says what it adds", () => {
  assert.match(roleEffects(member("bob", "operator"), "project", "viewer", place).join(" "), /is viewer here from now on, and was operator.*tokens lose the scopes/);
  assert.match(roleEffects(member("bob", "viewer"), "project", "admin", place).join(" "), /bob also manages members/);
  assert.match(roleEffects(member("bob", null, "operator"), "project", "editor", place).join(" "), /The role in the team is higher and counts here: operator/);
});

test("the last admin can neither leave nor be demoted", () => {
  const alice = member("alice", "admin"), bob = member("bob", "editor");
  assert.equal(isLastAdmin([alice, bob], alice, "project"), true);
  assert.equal(isLastAdmin([alice, member("bob", "admin")], alice, "project"), false);
  assert.equal(isLastAdmin([alice, member("carol", null, "admin")], alice, "project"), false, "an admin of the team manages the project too");
  assert.equal(isLastAdmin([member("alice", "admin", "admin"), bob], member("alice", "admin", "admin"), "project"), false);
  assert.equal(isLastAdmin([member("alice", "admin", "admin"), bob], member("alice", "admin", "admin"), "team"), true);
  const [change, leave] = memberActions(me("alice", "admin", ["members:admin"]), [alice, bob], alice);
  assert.match(change!.reason, /last admin of the project/);
  assert.match(leave!.reason, /last admin of the project/);
});

test("a viewer can do nothing but leave", () => {
  const alice = member("alice", "admin"), vera = member("vera", "viewer");
  const viewer = me("vera", "viewer", ["members:read", "members:write"]);
  assert.deepEqual(memberActions(viewer, [alice, vera], alice), []);
  assert.deepEqual(memberActions(viewer, [alice, vera], vera).map(({ label }) => label), ["Leave the project"]);
});

test("nobody gives a role above their own", () => {
  assert.deepEqual(rolesToGive(me("a", "operator", []), "project"), ["viewer", "editor", "operator"]);
  assert.deepEqual(rolesToGive(me("a", "viewer", ["team:admin"]), "team").length, 4);
});
