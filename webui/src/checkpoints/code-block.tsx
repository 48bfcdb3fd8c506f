import { Button, CopyButton } from "@mantine/core";

import classes from "./code-block.module.css";

/** Text to paste, with a button that copies it. */
export function CodeBlock({ text, label }: { text: string; label: string }) {
  return (
    <div className={classes.code}>
      <TextBlock text={text} label={label} />
      <CopyText text={text} label={label} />
    </div>
  );
}

export function TextBlock({ text, label }: { text: string; label: string }) {
  return <pre className={classes.text} tabIndex={0} aria-label={label}>{text}</pre>;
}

export function CopyText({ text, label }: { text: string; label: string }) {
  return <CopyButton value={text}>{({ copied, copy }) => <Button variant="default" onClick={copy} aria-label={`Copy ${label.toLowerCase()}`}>{copied ? "Copied" : "Copy"}</Button>}</CopyButton>;
}
