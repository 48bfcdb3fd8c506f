import { useRef, type KeyboardEvent } from "react";

import classes from "./code.module.css";
import type { SourceError } from "./kinds.ts";

type Props = { source: string; errors: SourceError[]; label: string; onChange: (source: string) => void };

/** A text field for Python with line numbers. Errors are listed below, and each opens its line. Enter keeps the indentation. */
export function CodeEditor({ source, errors, label, onChange }: Props) {
  const area = useRef<HTMLTextAreaElement>(null);
  const lines = source.split("\n").length;
  const open = (line: number) => {
    const start = source.split("\n").slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    area.current?.focus();
    area.current?.setSelectionRange(start, start + (source.split("\n")[line - 1]?.length ?? 0));
  };
  return (
    <div>
      <div className={classes.framed} data-error={errors.length > 0}>
        <div className={classes.code}>
          <div className={classes.lines} aria-hidden>
            {Array.from({ length: lines }, (_, index) => <span key={index} data-error={errors.some(({ line }) => line === index + 1)}>{index + 1}</span>)}
          </div>
          <textarea
            ref={area} className={classes.area} aria-label={label} aria-invalid={errors.length > 0} data-testid="source-editor" spellCheck={false} autoCapitalize="off" rows={lines + 1}
            value={source} onChange={(event) => onChange(event.currentTarget.value)} onKeyDown={(event) => keepIndentation(event)}
          />
        </div>
      </div>
      {errors.length > 0 && (
        <ul className={classes.errors} role="alert" data-testid="source-errors">
          {errors.map(({ line, message }, index) => (
            <li key={index}>{line !== null && <><button type="button" onClick={() => open(line)}>Line {line}</button> </>}{message}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** A new line begins as deep as the line before, and deeper after a colon. `insertText` keeps the field's own undo. */
function keepIndentation(event: KeyboardEvent<HTMLTextAreaElement>): void {
  if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
  const { value, selectionStart } = event.currentTarget;
  const line = value.slice(value.lastIndexOf("\n", selectionStart - 1) + 1, selectionStart);
  const indentation = /^[ \t]*/.exec(line)![0] + (/:\s*$/.test(line) ? "    " : "");
  if (indentation === "") return;
  event.preventDefault();
  document.execCommand("insertText", false, `\n${indentation}`);
}
