import { Modal } from "@mantine/core";
import { lazy, Suspense, type ReactNode } from "react";

import { Waiting } from "../common/notices.tsx";
import { RemoveAlias } from "./remove-alias.tsx";
import { RemoveGate } from "./remove-gate.tsx";
import { SetAlias } from "./set-alias.tsx";

const SetGate = lazy(() => import("./set-gate.tsx")); // with the YAML parser

/** An empty name or checkpoint is chosen in the dialog. */
export type AliasDialog = { kind: "set"; name: string; checkpoint: string } | { kind: "remove" | "gate" | "remove-gate"; name: string };

type Props = { shown: AliasDialog | null; showDialog: (dialog: AliasDialog) => void; close: () => void };

export function AliasDialogs({ shown, showDialog, close }: Props) {
  if (shown === null) return null;
  const [title, content] = parts(shown, showDialog, close);
  return <Modal opened onClose={close} title={title} returnFocus={false} size={shown.kind === "gate" ? "lg" : undefined}>{content}</Modal>;
}

function parts(shown: AliasDialog, showDialog: Props["showDialog"], close: () => void): [string, ReactNode] {
  const { kind, name } = shown;
  switch (kind) {
    case "remove": return [`Remove the alias ${name}?`, <RemoveAlias name={name} done={close} />];
    case "gate": return [name === "" ? "Set a promotion gate" : `Gate of ${name}`, <Suspense fallback={<Waiting />}><SetGate name={name} done={close} /></Suspense>];
    case "remove-gate": return [`Remove the gate of ${name}?`, <RemoveGate name={name} done={close} />];
    case "set": return [name === "" ? "Set an alias" : `Point ${name} to a checkpoint`, <SetAlias name={name} checkpoint={shown.checkpoint} showDialog={showDialog} done={close} />];
  }
}
