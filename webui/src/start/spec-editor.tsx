import { useMemo } from "react";

import type { FieldProblem } from "../api/problem.ts";
import { lineOf, type SyntaxProblem } from "./spec-text.ts";
import classes from "./start-page.module.css";

type Props = { text: string; errors: FieldProblem[]; syntaxError: SyntaxProblem | null; onChange: (text: string) => void };

/** The spec as text, with each error next to its line. */
export function SpecEditor({ text, errors, syntaxError, onChange }: Props) {
  const lines = text.split("\n").length;
  const located = useMemo(
    () => (syntaxError === null ? errors.map((error) => ({ ...error, line: lineOf(text, error.pointer) })) : [{ pointer: "", code: "syntax", message: syntaxError.message, line: syntaxError.line }]),
    [text, errors, syntaxError],
  );
  return (
    <div className={classes.editor}>
      <div className={classes.text}>
        <div className={classes.lines} aria-hidden>
          {Array.from({ length: lines }, (_, index) => <span key={index} data-error={located.some((entry) => entry.line === index + 1)}>{index + 1}</span>)}
        </div>
        <textarea className={classes.area} aria-label="Spec" data-testid="spec-text" spellCheck={false} rows={lines + 1} value={text} onChange={(event) => onChange(event.currentTarget.value)} />
      </div>
      <div className={classes.errors} role="status">
        {located.length === 0 && <span style={{ color: "var(--ink-faint)" }}>Validation errors are listed here with their line.</span>}
        {located.map((entry, index) => (
          <div key={index} className={classes.error}>
            <b>{entry.line === null ? "" : `Line ${entry.line} `}</b><code className="mono">{entry.pointer}</code> {entry.message}
          </div>
        ))}
      </div>
    </div>
  );
}
