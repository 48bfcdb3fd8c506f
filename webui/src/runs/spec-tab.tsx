import { Button, CopyButton } from "@mantine/core";
import { stringify } from "yaml";

import type { Run } from "../api/schema.d.ts";
import { Panel } from "../common/panel.tsx";

/** The resolved spec, with all defaults, as submitted. */
export function SpecTab({ run }: { run: Run }) {
  const text = stringify(run.spec);
  return (
    <Panel
      title="Resolved spec"
      aside={<CopyButton value={text}>{({ copied, copy }) => <Button variant="default" onClick={copy}>{copied ? "Copied" : "Copy as YAML"}</Button>}</CopyButton>}
    >
      <pre className="mono" style={{ margin: 0, fontSize: "0.76rem", lineHeight: 1.55, overflowX: "auto" }}>{text}</pre>
    </Panel>
  );
}
