import { Button, CopyButton, Modal, SegmentedControl } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import * as queries from "../api/queries.ts";
import { copyText, type CopyKind } from "./copy-text.ts";
import type { SpecState } from "./spec-state.ts";
import { asYaml } from "./spec-text.ts";
import classes from "./copy-as.module.css";

const KINDS: { value: CopyKind; label: string }[] = [{ value: "cli", label: "Command line" }, { value: "curl", label: "curl" }, { value: "sdk", label: "Python SDK" }];

/** The spec of the form as a command or program, with the address and the names of the project. */
export default function CopyAs({ state, onClose }: { state: SpecState; onClose: () => void }) {
  const [kind, setKind] = useState<CopyKind>("cli");
  const me = useQuery(queries.me).data;
  const yaml = state.text ?? asYaml(state.spec);
  const text = copyText(kind, { spec: state.spec, yaml, origin: window.location.origin, team: me?.team.name ?? "", project: me?.project.name ?? "" });
  return (
    <Modal opened onClose={onClose} title="Start this run from elsewhere" size="xl" closeButtonProps={{ "aria-label": "Close" }}>
      <div className={classes.bar}>
        <SegmentedControl value={kind} onChange={(value) => setKind(value as CopyKind)} data={KINDS} />
        <CopyButton value={text}>{({ copied, copy }) => <Button onClick={copy} data-autofocus>{copied ? "Copied" : "Copy"}</Button>}</CopyButton>
      </div>
      <pre className={classes.code} tabIndex={0} aria-label="Text to copy" data-testid="copy-text">{text}</pre>
    </Modal>
  );
}

/** Save the spec as run.yaml. */
export function downloadYaml(state: SpecState): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([state.text ?? asYaml(state.spec)], { type: "application/yaml" }));
  link.download = "run.yaml";
  link.click();
  URL.revokeObjectURL(link.href);
}
