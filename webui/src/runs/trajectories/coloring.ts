import type { Piece } from "./tokens.ts";

export const COLORINGS = {
  version: { label: "Policy version" },
  probability: { label: "Probability" },
  none: { label: "No color" },
} as const;

export type Coloring = keyof typeof COLORINGS;

/** The colorings that the data of a trajectory allows. What was not recorded is not offered. */
export function colorings({ pieces, byToken }: { pieces: Piece[]; byToken: boolean }): Coloring[] {
  const hasProbabilities = byToken && pieces.some((piece) => piece.logprob !== null);
  return ["version", ...(hasProbabilities ? ["probability" as const] : []), "none"];
}
