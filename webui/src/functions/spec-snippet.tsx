import { Button, CopyButton, Group } from "@mantine/core";
import { Link } from "react-router";

import classes from "./function-page.module.css";

/** The lines of a RunSpec that use a function, and the start page with them. */
export function SpecSnippet({ text, start }: { text: string; start: string }) {
  return (
    <div className={classes.snippet}>
      <pre tabIndex={0} role="region" aria-label="Lines of the run's spec" data-testid="spec-snippet">{text}</pre>
      <Group justify="flex-end" gap={8} mt={8}>
        <CopyButton value={text}>{({ copied, copy }) => <Button variant="default" onClick={copy}>{copied ? "Copied" : "Copy"}</Button>}</CopyButton>
        <Button component={Link} variant="default" to={start}>Start a run</Button>
      </Group>
    </div>
  );
}
