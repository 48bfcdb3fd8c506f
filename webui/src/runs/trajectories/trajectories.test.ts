import assert from "node:assert/strict";
import { test } from "vitest";

import { sampledText } from "./group-summary.ts";
import { colorings, levelOf } from "./coloring.ts";
import { describePiece } from "./describe-piece.ts";
import { blocksOf, firstPieces, piecesOf, probabilityClass, versionsIn } from "./tokens.ts";
import { filterError, trajectoryQuery, withoutFilters } from "./trajectory-filter.ts";

const WHOLE = {
  completion: "a🙂 <tool> b",
  policy_versions: [3, 3, -1, 1, 4, 1],
  version_texts: [],
  token_ids: [5, 6, 7, 8, 9],
  logprobs: [-0.1, -0.2, -5, 0, -1],
  versions: [3, 3, 3, -1, 4],
  token_chars: [1, 1, 0, 8, 1],
  trainer_logprobs: [-0.1, -1.4, -3, null, null],
  advantages: [0.5, 0.5, -1.25, null, null],
};

test("a completion is cut into its tokens by characters, not by UTF-16 units", () => {
  const { pieces, byToken } = piecesOf(WHOLE);
  assert.equal(byToken, true);
  assert.deepEqual(pieces.map((piece) => piece.text), ["a", "🙂", "", " <tool> ", "b"]);
  assert.deepEqual(pieces.map((piece) => piece.logprob), [-0.1, -0.2, -5, null, -1]);
  assert.deepEqual(versionsIn(pieces), [3, 4]);
});

test("lengths that do not fit the text are not used", () => {
  const { pieces, byToken } = piecesOf({ ...WHOLE, completion: "shorter" });
  assert.equal(byToken, false);
  assert.equal(pieces.map((piece) => piece.text).join(""), "shorter");
  assert.deepEqual(pieces.map((piece) => piece.index), [0, 3, 4]);
});

test("the environment's answer separates two turns", () => {
  const blocks = blocksOf(piecesOf(WHOLE).pieces);
  assert.deepEqual(blocks.map(({ kind, turn, tokens }) => [kind, turn, tokens]), [["policy", 1, 3], ["environment", 1, 1], ["policy", 2, 1]]);
});

test("a long trajectory is cut between tokens and loses none when all are shown", () => {
  const blocks = blocksOf(piecesOf(WHOLE).pieces);
  assert.deepEqual(firstPieces(blocks, 4).map((block) => block.pieces.length), [3, 1]);
  assert.deepEqual(firstPieces(blocks, 2).map((block) => block.pieces.length), [2]);
  assert.deepEqual(firstPieces(blocks, 99), blocks);
});

test("probabilities fall into the classes of the legend", () => {
  assert.deepEqual([0, Math.log(0.9), Math.log(0.89), -1, -3, -30].map(probabilityClass), [0, 0, 1, 2, 3, 4]);
});

test("tokens are colored by the trainer's values where it recorded them", () => {
  const content = piecesOf(WHOLE);
  assert.deepEqual(colorings(content), ["version", "probability", "difference", "advantage", "none"]);
  assert.deepEqual(content.pieces.map((piece) => levelOf(piece, "difference")), ["d2", "d0", "d4", undefined, undefined]);
  assert.deepEqual(content.pieces.map((piece) => levelOf(piece, "advantage")), ["d3", "d3", "d0", undefined, undefined]);
  assert.match(describePiece(content.pieces[2]!, 5), /trainer − engine \+2\.0000 · advantage −1\.2500$/);
  const without = piecesOf({ ...WHOLE, trainer_logprobs: null, advantages: null });
  assert.deepEqual(colorings(without), ["version", "probability", "none"]);
});

test("a group says how much of it was sampled, and why", () => {
  const member = (...sample_reasons: string[]) => ({ member: 0, reward: 1, sample_reasons });
  assert.equal(sampledText([member("lowest_reward"), member("widest_span")], 8), "2 of 8 sampled: lowest reward, widest span");
  assert.equal(sampledText([member("group"), member("group", "longest")], 2), "all 2 of the group");
  assert.equal(sampledText([member("longest")], null), "1 sampled: longest");
});

test("the URL holds the filters of the API, and an invalid value is not sent", () => {
  const search = new URLSearchParams("tab=trajectories&trajectory=7&q=box&reward_min=0.5&step_from=x&because=longest");
  assert.deepEqual(trajectoryQuery(search), { q: "box", reward_min: 0.5, because: "longest" });
  assert.equal(filterError("whole", "1.5"), '"1.5" is not a whole number from 0');
  assert.equal(filterError("number", "-0.5"), null);
  assert.equal(withoutFilters(search).toString(), "tab=trajectories&trajectory=7");
});
