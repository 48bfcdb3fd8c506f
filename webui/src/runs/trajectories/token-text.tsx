import { Button } from "@mantine/core";
import { useLayoutEffect, useMemo, useRef, useState, type KeyboardEvent, type MouseEvent } from "react";

import { grouped } from "../../common/format.ts";
import { levelOf, type Coloring } from "./coloring.ts";
import { ColorLegend } from "./color-legend.tsx";
import classes from "./token-text.module.css";
import { blocksOf, firstPieces, type Block, type Piece } from "./tokens.ts";
import { describePiece } from "./describe-piece.ts";
import { ENVIRONMENT } from "./version-spans.ts";

const SHOWN_PIECES = 2_000; // more tokens than anybody reads at once, few enough to draw in one frame

type Props = { pieces: Piece[]; byToken: boolean; coloring: Coloring; isAll: boolean; onAll: () => void };

/** A completion, colored, in turns. The values of the token under the pointer or the cursor are above the text. */
export function TokenText({ pieces, byToken, coloring, isAll, onAll }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<number | null>(null); // index within `pieces`
  const blocks = useMemo(() => blocksOf(pieces), [pieces]);
  const shown = useMemo(() => (isAll ? blocks : firstPieces(blocks, SHOWN_PIECES)), [blocks, isAll]);
  const positions = useMemo(() => new Map(pieces.map((piece, position) => [piece.index, position])), [pieces]);
  const total = pieces.reduce((sum, piece) => sum + piece.tokens, 0);
  const current = at === null ? undefined : pieces[at];

  // Marked in the document itself: rendering thousands of tokens for one of them would be slow.
  const here = current?.index ?? null;
  useLayoutEffect(() => {
    const element = box.current?.querySelector<HTMLElement>(`[data-i="${here}"]`);
    if (here === null || element === null || element === undefined) return;
    element.dataset["current"] = "true";
    element.scrollIntoView({ block: "nearest" });
    return () => { delete element.dataset["current"]; };
  }, [here, shown]);

  const onMouseOver = ({ target }: MouseEvent) => {
    const index = (target as HTMLElement).closest<HTMLElement>("[data-i]")?.dataset["i"];
    if (index !== undefined) setAt(positions.get(Number(index)) ?? null);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move === undefined || event.altKey || event.metaKey || event.ctrlKey) return;
    event.preventDefault();
    const most = Math.min(pieces.length, isAll ? pieces.length : SHOWN_PIECES) - 1;
    setAt((old) => Math.min(most, Math.max(0, old === null ? 0 : old + move)));
  };
  return (
    <>
      <ColorLegend coloring={coloring} pieces={pieces} />
      <p className={classes.readout} role="status" data-testid="token-readout">
        {current === undefined ? <span className={classes.hint}>Point at a {byToken ? "token" : "part"}, or focus the text and use the left and right arrow keys, for its exact values.</span> : describePiece(current, total)}
      </p>
      <div ref={box} className={classes.text} tabIndex={0} role="region" aria-label="Completion by token" data-coloring={coloring} onMouseOver={onMouseOver} onMouseLeave={() => setAt(null)} onKeyDown={onKeyDown} data-testid="completion">
        {shown.map((block) => <BlockText key={block.pieces[0]!.index} block={block} isOnly={blocks.length === 1} coloring={coloring} />)}
      </div>
      {!isAll && pieces.length > SHOWN_PIECES && <Button variant="light" size="compact-sm" mt={6} onClick={onAll}>Show all {grouped(total)} tokens</Button>}
    </>
  );
}

function BlockText({ block, isOnly, coloring }: { block: Block; isOnly: boolean; coloring: Coloring }) {
  const isEnvironment = block.kind === "environment";
  const text = useMemo(() => block.pieces.map((piece, position) => <PieceText key={piece.index} piece={piece} coloring={coloring} before={block.pieces[position - 1]} />), [block, coloring]);
  return (
    <div className={classes.block} data-kind={block.kind}>
      {!isOnly && <div className={classes.turn}>{isEnvironment ? "Environment, not trained" : `Turn ${block.turn}`} <small>{grouped(block.tokens)} tokens</small></div>}
      <pre className={classes.pieces}>{text}</pre>
    </div>
  );
}

function PieceText({ piece, coloring, before }: { piece: Piece; coloring: Coloring; before: Piece | undefined }) {
  const isNewVersion = coloring === "version" && piece.version !== ENVIRONMENT && before?.version !== piece.version;
  const level = levelOf(piece, coloring);
  return (
    <>
      {isNewVersion && <sup className={classes.version}>v{piece.version}</sup>}
      <span data-i={piece.index} data-level={level} className={level === undefined ? undefined : classes.piece}>{piece.text}</span>
    </>
  );
}
