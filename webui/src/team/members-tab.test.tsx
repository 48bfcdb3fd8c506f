import assert from "node:assert/strict";
import { fireEvent, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Me, Member } from "../api/schema.d.ts";
import { answerRequests, renderPage } from "../testing/render.tsx";
import { MembersTab } from "./members-tab.tsx";

const me = (username: string, role: string, scopes: string[]): Me =>
  ({ user: { id: `usr_${username}`, username }, team: { id: "t", name: "red" }, project: { id: "p", name: "default" }, role, scopes, token: null, login: null });
const member = (username: string, role: Member["role"]): Member => ({ id: `usr_${username}`, username, role, project_role: role, team_role: null });
const list = (members: Member[]) => ({ "GET /api/v1/members": { body: { data: members, next_cursor: null, has_more: false } } });
const ADMIN = me("alice", "admin", ["members:read", "members:write", "members:admin"]);

test("a viewer sees the members without a way to change them, and with the reason", async () => {
  answerRequests(list([member("alice", "admin"), member("vera", "viewer")]));
  renderPage(<MembersTab me={me("vera", "viewer", ["members:read", "members:write"])} />);
  assert.ok(await screen.findByText("you"));
  assert.deepEqual(screen.getAllByRole("button").map((button) => button.getAttribute("aria-label")), ["Actions on vera"]);
  assert.ok(screen.getByText(/Admins of the project add members and change roles. Your role here is viewer/));
});

test("an admin changes a role after reading what it does", async () => {
  const sent = answerRequests({ ...list([member("alice", "admin"), member("erin", "editor")]), "PATCH /api/v1/members/usr_erin": { body: {} } });
  renderPage(<MembersTab me={ADMIN} />);
  const user = userEvent.setup();
  await user.click(await screen.findByRole("button", { name: "Actions on erin" }));
  await user.click(await screen.findByRole("menuitem", { name: "Change the role in the project" }));
  assert.ok(screen.getByRole("button", { name: "Change role" }).hasAttribute("disabled"), "nothing is changed yet");
  await user.click(screen.getByRole("combobox", { name: "Role" }));
  await user.click(await screen.findByRole("option", { name: "viewer" }));
  assert.match(screen.getByTestId("effects").textContent ?? "", /erin is viewer here from now on, and was editor/);
  await user.click(screen.getByRole("button", { name: "Change role" }));
  await screen.findByRole("button", { name: "Actions on erin" });
  assert.deepEqual(sent.find(({ method }) => method === "PATCH")?.body, { role: "viewer" });
});

test("many members are searched and shown a part at a time", async () => {
  answerRequests(list(Array.from({ length: 102 }, (_, n) => member(`user-${n}`, "viewer"))));
  renderPage(<MembersTab me={me("vera", "viewer", ["members:read"])} />);
  const rows = () => document.querySelectorAll("[data-testid=members] tbody tr").length; // roles of so many rows take seconds
  await screen.findByText("user-0");
  assert.equal(rows(), 100);
  fireEvent.click(screen.getByText("Show more"));
  assert.equal(rows(), 102);
  fireEvent.change(screen.getByLabelText("Search members"), { target: { value: "user-101" } });
  assert.equal(rows(), 1);
  assert.ok(screen.getByText("1 of 102"));
});

test("a list that cannot be read says so and can be tried again", async () => {
  const answers: Parameters<typeof answerRequests>[0] = { "GET /api/v1/members": { status: 503, body: { title: "Unavailable", status: 503, code: "unavailable", detail: "The database does not answer." } } };
  answerRequests(answers);
  renderPage(<MembersTab me={ADMIN} />);
  assert.ok(await screen.findByText("The database does not answer."));
  Object.assign(answers, list([member("alice", "admin")]));
  await userEvent.setup().click(screen.getByRole("button", { name: "Try again" }));
  assert.ok(await screen.findByText("alice"));
});
