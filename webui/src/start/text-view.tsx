import { useEffect, useMemo, useRef } from "react";

import type { FieldProblem } from "../api/problem.ts";
import type { SpecState } from "./spec-state.ts";
import { asYaml, lineOf, readText } from "./spec-text.ts";
import classes from "./text-view.module.css";

type Props = { state: SpecState; errors: FieldProblem[]; target: string | null; onChange: (state: SpecState) => void; onFocused: () => void };

/** The spec as YAML, with each error at its line. JSON is YAML too. */
export default function TextView({ state, errors, target, onChange, onFocused }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const text = useMemo(() => state.text ?? asYaml(state.spec), [state]);
  const lines = text.split("\n");
  const byLine = useMemo(() => {
    const found = new Map<number, string[]>();
    const note = (line: number | null, message: string) => found.set(line ?? 1, [...(found.get(line ?? 1) ?? []), message]);
    if (state.syntaxError !== null) note(state.syntaxError.line, state.syntaxError.message);
    else for (const { pointer, message } of errors) note(lineOf(text, pointer), message);
    return found;
  }, [text, errors, state.syntaxError]);

  useEffect(() => {
    if (target === null || area.current === null) return;
    const line = lineOf(text, target) ?? 1;
    const start = text.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    area.current.focus({ preventScroll: true });
    area.current.setSelectionRange(start, start + (text.split("\n")[line - 1] ?? "").length);
    document.querySelector(`[data-line="${line}"]`)?.scrollIntoView({ block: "center" });
    onFocused();
  }, [target, text, onFocused]);

  return (
    <div className={classes.text}>
      <div className={classes.lines} aria-hidden>
        {lines.map((_, index) => <span key={index} data-line={index + 1} data-error={byLine.has(index + 1)}>{index + 1}</span>)}
      </div>
      <div className={classes.body}>
        <textarea
          ref={area} className={classes.area} aria-label="Spec" data-testid="spec-text" spellCheck={false} rows={lines.length + 1} value={text} aria-invalid={byLine.size > 0}
          onChange={(event) => onChange(readText(state, event.currentTarget.value))}
        />
        {[...byLine].map(([line, messages]) => (
          <span key={line} className={classes.error} style={{ top: `calc(12px + ${line - 1} * 19px)` }} data-error-line={line} title={messages.join("\n")}>{messages.join(" · ")}</span>
        ))}
      </div>
    </div>
  );
}
