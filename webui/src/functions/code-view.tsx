import { useMemo } from "react";

import classes from "./code.module.css";
import { tokens } from "./python-tokens.ts";

const MAX_COLORED = 60_000; // characters; a longer file is shown in one color

/** Python source with line numbers. */
export function CodeView({ source, label }: { source: string; label: string }) {
  const text = source.replace(/\r?\n$/, "");
  const pieces = useMemo(() => (text.length <= MAX_COLORED ? tokens(text) : null), [text]);
  const numbers = useMemo(() => Array.from({ length: text.split("\n").length }, (_, index) => index + 1).join("\n"), [text]);
  return (
    <div className={classes.code} data-testid="source">
      <div className={classes.lines} aria-hidden>{numbers}</div>
      <pre className={classes.text} tabIndex={0} role="region" aria-label={label}>
        {pieces === null ? text : pieces.map(({ kind, text: piece }, index) => (kind === "name" ? piece : <span key={index} data-kind={kind}>{piece}</span>))}
      </pre>
    </div>
  );
}
