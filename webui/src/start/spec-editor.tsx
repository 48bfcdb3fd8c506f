import { useMemo } from "react";

import type { FieldProblem } from "../api/problem.ts";
import { lineOf } from "./spec-text.ts";
import classes from "./start-page.module.css";

type Props = { text: string; errors: FieldProblem[]; fault: { fault: string; line: number } | null; onChange: (text: string) => void };

/** The spec as text, each fault beside its line. */
export function SpecEditor({ text, errors, fault, onChange }: Props) {
  const lines = text.split("\n").length;
  const placed = useMemo(
    () => (fault === null ? errors.map((error) => ({ ...error, line: lineOf(text, error.pointer) })) : [{ pointer: "", code: "syntax", message: fault.fault, line: fault.line }]),
    [text, errors, fault],
  );
  return (
    <div className={classes.editor}>
      <div className={classes.text}>
        <div className={classes.lines} aria-hidden>
          {Array.from({ length: lines }, (_, index) => <span key={index} data-fault={placed.some((entry) => entry.line === index + 1)}>{index + 1}</span>)}
        </div>
        <textarea className={classes.area} aria-label="Spec" data-testid="spec-text" spellCheck={false} rows={lines + 1} value={text} onChange={(event) => onChange(event.currentTarget.value)} />
      </div>
      <div className={classes.faults} role="status">
        {placed.length === 0 && <span style={{ color: "var(--ink-faint)" }}>Unknown keys, wrong values and rules between keys are named here, with their line.</span>}
        {placed.map((entry, index) => (
          <div key={index} className={classes.fault}>
            <b>{entry.line === null ? "" : `Line ${entry.line} `}</b><code className="mono">{entry.pointer}</code> {entry.message}
          </div>
        ))}
      </div>
    </div>
  );
}
