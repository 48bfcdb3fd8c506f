import { ENVIRONMENT, spansOf, type Sample } from "./version-spans.ts";

/** One token of a completion, or a whole stretch of one policy version where the job did not report tokens. */
export type Piece = {
  text: string;
  version: number; // ENVIRONMENT where the environment wrote it
  tokens: number;
  index: number; // of its first token in the completion
  id: number | null;
  logprob: number | null; // of the distribution that it was sampled from; null where the environment wrote it
  difference: number | null; // the trainer's log-probability less that one; null where it was not trained or recorded
  advantage: number | null;
};

/** What the policy wrote in one turn, or what the environment answered. */
export type Block = { kind: "policy" | "environment"; turn: number; tokens: number; pieces: Piece[] };

type Whole = Sample & { token_ids: number[] | null; logprobs: number[] | null; versions: number[] | null; token_chars: number[] | null; trainer_logprobs: (number | null)[] | null; advantages: (number | null)[] | null };

/** The pieces of a completion. `byToken` tells whether each is one token. */
export function piecesOf(whole: Whole): { pieces: Piece[]; byToken: boolean; isExact: boolean } {
  const { token_ids: ids, logprobs, versions, token_chars: lengths } = whole;
  const characters = [...whole.completion];
  const total = lengths?.reduce((sum, length) => sum + length, 0);
  // A secret that was cut from the text makes it shorter: then the lengths no longer fit.
  if (ids === null || logprobs === null || versions === null || lengths === null || total !== characters.length) {
    const { spans, isExact } = spansOf(whole);
    let index = 0;
    const pieces = spans.map((span) => {
      const piece = { ...span, index, id: null, logprob: null, difference: null, advantage: null };
      index += span.tokens;
      return piece;
    });
    return { pieces, byToken: false, isExact };
  }
  let from = 0;
  const pieces = ids.map((id, index) => {
    const text = characters.slice(from, from + lengths[index]!).join("");
    from += lengths[index]!;
    const version = versions[index]!;
    const logprob = version === ENVIRONMENT ? null : logprobs[index]!;
    const trainer = whole.trainer_logprobs?.[index] ?? null;
    const difference = trainer === null || logprob === null ? null : trainer - logprob;
    return { text, version, tokens: 1, index, id, logprob, difference, advantage: whole.advantages?.[index] ?? null };
  });
  return { pieces, byToken: true, isExact: true };
}

/** Split the pieces into the turns of the policy and the answers of the environment. */
export function blocksOf(pieces: Piece[]): Block[] {
  const blocks: Block[] = [];
  for (const piece of pieces) {
    const kind = piece.version === ENVIRONMENT ? "environment" : "policy";
    const last = blocks.at(-1);
    if (last?.kind === kind) {
      last.pieces.push(piece);
      last.tokens += piece.tokens;
    } else {
      blocks.push({ kind, turn: Math.floor(blocks.length / 2) + 1, tokens: piece.tokens, pieces: [piece] });
    }
  }
  return blocks;
}

/** The blocks up to `most` pieces, so that a long trajectory opens fast. */
export function firstPieces(blocks: Block[], most: number): Block[] {
  const shown: Block[] = [];
  let room = most;
  for (const block of blocks) {
    if (room <= 0) break;
    shown.push(block.pieces.length <= room ? block : { ...block, pieces: block.pieces.slice(0, room) });
    room -= block.pieces.length;
  }
  return shown;
}

/** Classes of the probability that the policy gave a token, most probable first. */
export const PROBABILITY_CLASSES = [
  { least: 0.9, label: "90 % or more" },
  { least: 0.5, label: "50 to 90 %" },
  { least: 0.1, label: "10 to 50 %" },
  { least: 0.01, label: "1 to 10 %" },
  { least: 0, label: "below 1 %" },
];

export function probabilityClass(logprob: number): number {
  const probability = Math.exp(logprob);
  return PROBABILITY_CLASSES.findIndex(({ least }) => probability >= least);
}

/** Bounds of the classes of a value with a sign: weak and strong, below and above 0. */
export const DIFFERENCE_BOUNDS = { weak: 0.1, strong: 1 };
export const ADVANTAGE_BOUNDS = { weak: 0.001, strong: 1 };

/** 0: strongly negative, 1: negative, 2: about 0, 3: positive, 4: strongly positive. */
export function signedClass(value: number, { weak, strong }: { weak: number; strong: number }): number {
  const size = Math.abs(value) < weak ? 0 : Math.abs(value) < strong ? 1 : 2;
  return 2 + Math.sign(value) * size;
}

/** The versions of the policy in the pieces, oldest first. */
export function versionsIn(pieces: Piece[]): number[] {
  return [...new Set(pieces.map((piece) => piece.version))].filter((version) => version !== ENVIRONMENT).sort((a, b) => a - b);
}
