import { ADVANTAGE_BOUNDS, DIFFERENCE_BOUNDS, probabilityClass, signedClass, type Piece } from "./tokens.ts";
import { ENVIRONMENT } from "./version-spans.ts";

export const COLORINGS = {
  version: { label: "Policy version" },
  probability: { label: "Probability" },
  difference: { label: "Difference" },
  advantage: { label: "Advantage" },
  none: { label: "No color" },
} as const;

export type Coloring = keyof typeof COLORINGS;

/** The colorings that the data of a trajectory allows. What was not recorded is not offered. */
export function colorings({ pieces, byToken }: { pieces: Piece[]; byToken: boolean }): Coloring[] {
  const recorded = (["probability", "difference", "advantage"] as const).filter((coloring) => byToken && pieces.some((piece) => levelOf(piece, coloring) !== undefined));
  return ["version", ...recorded, "none"];
}

/** The class of a token's color; none where it has no such value. */
export function levelOf(piece: Piece, coloring: Coloring): string | undefined {
  if (piece.version === ENVIRONMENT || coloring === "none") return undefined;
  if (coloring === "version") return `v${piece.version % 6}`;
  if (coloring === "probability") return piece.logprob === null ? undefined : `p${probabilityClass(piece.logprob)}`;
  const value = piece[coloring];
  return value === null ? undefined : `d${signedClass(value, coloring === "difference" ? DIFFERENCE_BOUNDS : ADVANTAGE_BOUNDS)}`;
}
