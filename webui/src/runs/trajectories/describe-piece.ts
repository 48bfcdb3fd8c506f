import { grouped } from "../../common/format.ts";
import type { Piece } from "./tokens.ts";
import { ENVIRONMENT } from "./version-spans.ts";

/** The exact values of a token, or of a stretch of tokens, in one line. */
export function describePiece(piece: Piece, total: number): string {
  const last = piece.index + piece.tokens;
  const place = piece.tokens === 1 ? `Token ${grouped(last)} of ${grouped(total)}` : `Tokens ${grouped(piece.index + 1)} to ${grouped(last)} of ${grouped(total)}`;
  const text = piece.id === null ? "" : piece.text === "" ? "part of the character before" : JSON.stringify(piece.text);
  const writer = piece.version === ENVIRONMENT ? "written by the environment, not trained" : `policy version ${piece.version}`;
  const probability = piece.logprob === null ? "" : `log-probability ${piece.logprob.toFixed(4).replace("-", "−")}, probability ${(100 * Math.exp(piece.logprob)).toFixed(2)} %`;
  const difference = piece.difference === null ? "" : `trainer − engine ${signed(piece.difference)}`;
  const advantage = piece.advantage === null ? "" : `advantage ${signed(piece.advantage)}`;
  return [place, text, piece.id === null ? "" : `id ${piece.id}`, writer, probability, difference, advantage].filter(Boolean).join(" · ");
}

function signed(value: number): string {
  return value.toFixed(4).replace("-", "−").replace(/^(?=[1-9]|0\.\d*[1-9])/, "+");
}
