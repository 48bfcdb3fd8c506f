import assert from "node:assert/strict";
import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test } from "vitest";

import type { Trajectory } from "../../api/schema.d.ts";
import { renderPage } from "../../testing/render.tsx";
import { TrajectoryFilters } from "./filters.tsx";
import { GroupMembers } from "./group-members.tsx";
import { TokenText } from "./token-text.tsx";
import type { Piece } from "./tokens.ts";

const piece = (index: number, fields: Partial<Piece> = {}): Piece => ({ text: `t${index} `, version: 3, tokens: 1, index, id: 40 + index, logprob: Math.log(0.5), difference: null, advantage: null, ...fields });
const member = (id: number, reward: number, reasons: string[]) =>
  ({ id, member: id - 10, reward, sample_reasons: reasons, completion: "text", finish_reason: "stop", low_version: 1, high_version: 1, tokens: 4 }) as Trajectory;

function text(pieces: Piece[], isAll = false) {
  renderPage(<TokenText pieces={pieces} byToken coloring="probability" isAll={isAll} onAll={() => {}} />);
}

test("arrow keys move through the tokens and say the exact values of each", async () => {
  text([piece(0), piece(1, { version: 4, logprob: Math.log(0.25) })]);
  screen.getByRole("region", { name: "Completion by token" }).focus();
  await userEvent.keyboard("{ArrowRight}{ArrowRight}{ArrowRight}");
  assert.equal(screen.getByTestId("token-readout").textContent, 'Token 2 of 2 · "t1 " · id 41 · policy version 4 · log-probability −1.3863, probability 25.00 %');
  await userEvent.keyboard("{ArrowLeft}");
  assert.match(screen.getByTestId("token-readout").textContent, /^Token 1 of 2/);
});

test("text of the model is text, and the environment's is no token of the policy", async () => {
  text([piece(0, { text: "<img src=x>" }), piece(1, { version: -1, logprob: null })]);
  assert.equal(document.querySelector("img"), null);
  await userEvent.hover(screen.getByText("t1"));
  assert.match(screen.getByTestId("token-readout").textContent, /written by the environment, not trained$/);
  assert.ok(screen.getByText("Environment, not trained"));
});

test("a long completion is cut, and offers the rest", () => {
  text(Array.from({ length: 2_500 }, (_, index) => piece(index)));
  assert.equal(document.querySelectorAll("[data-i]").length, 2_000);
  assert.ok(screen.getByRole("button", { name: "Show all 2,500 tokens" }));
});

test("arrow keys open the neighbors in the group, and a whole group compares with its mean", async () => {
  const opened: number[] = [];
  renderPage(<GroupMembers members={[member(10, 1, ["group"]), member(11, 0, ["group", "longest"])]} shown={10} onOpen={(id) => opened.push(id)} />);
  const group = screen.getByRole("radiogroup", { name: "Members of the group" });
  within(group).getByRole("radio", { checked: true }).focus();
  await userEvent.keyboard("{ArrowDown}{ArrowUp}");
  assert.deepEqual(opened, [11, 11]);
  assert.ok(within(group).getByText("+0.50") && within(group).getByText("−0.50"));
  assert.ok(within(group).getByText(/^longest · v1/));
});

test("members of a part of a group are not compared with a mean that is not theirs", () => {
  renderPage(<GroupMembers members={[member(10, 1, ["highest_reward"]), member(11, 0, ["longest"])]} shown={10} onOpen={() => {}} />);
  assert.equal(screen.queryByText("+0.50"), null);
});

test("a typed value that is no number is refused at its field", async () => {
  renderPage(<TrajectoryFilters search={new URLSearchParams()} onChange={() => {}} />);
  await userEvent.type(screen.getByLabelText("Reward from"), "high");
  assert.ok(await screen.findByText('"high" is not a number'));
});
