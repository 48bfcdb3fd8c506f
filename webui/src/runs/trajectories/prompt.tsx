import { Button } from "@mantine/core";
import { useState } from "react";

import classes from "./reader.module.css";

const SHORT_CHARACTERS = 600;

/** The prompt as text. A long one is cut until somebody asks for it. */
export function Prompt({ text }: { text: string }) {
  const [isAll, setAll] = useState(false);
  const isCut = !isAll && text.length > SHORT_CHARACTERS;
  return (
    <section aria-label="Prompt">
      <b>Prompt</b>
      <pre className={classes.prompt} tabIndex={0} role="region" aria-label="Text of the prompt">{isCut ? `${text.slice(0, SHORT_CHARACTERS)}…` : text}</pre>
      {text.length > SHORT_CHARACTERS && <Button variant="subtle" size="compact-xs" onClick={() => setAll(!isAll)}>{isCut ? `Show all ${text.length} characters` : "Show less"}</Button>}
    </section>
  );
}
