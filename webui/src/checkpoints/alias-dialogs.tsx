import { Modal } from "@mantine/core";
import { lazy, Suspense, type ReactNode } from "react";

import { CHECKPOINTS } from "../api/checkpoint-queries.ts";
import { remove } from "../api/http.ts";
import { Confirm } from "../common/confirm.tsx";
import { Waiting } from "../common/notices.tsx";
import { SetAlias } from "./set-alias.tsx";

const SetGate = lazy(() => import("./set-gate.tsx")); // with the YAML parser

/** An empty name or checkpoint is chosen in the dialog. */
type Form = { kind: "set"; name: string; checkpoint: string } | { kind: "gate"; name: string };
export type AliasDialog = Form | { kind: "remove"; name: string } | { kind: "remove-gate"; name: string };

type Props = { shown: AliasDialog | null; showDialog: (dialog: AliasDialog) => void; close: () => void };

export function AliasDialogs({ shown, showDialog, close }: Props) {
  if (shown === null) return null;
  if (shown.kind === "remove") {
    return (
      <Confirm title={`Remove the alias ${shown.name}?`} action="Remove alias" changes={[CHECKPOINTS]} onClose={close} run={() => remove("/api/v1/checkpoint-aliases/{alias}", { path: { alias: shown.name } })}>
        The checkpoint stays, but the retention policy may delete it from now on. Specs and commands that name {shown.name} fail until it is set again. Active runs are not affected: they use the checkpoint's ID.
      </Confirm>
    );
  }
  if (shown.kind === "remove-gate") {
    return (
      <Confirm title={`Remove the gate of ${shown.name}?`} action="Remove gate" changes={[CHECKPOINTS]} onClose={close} run={() => remove("/api/v1/checkpoint-gates/{alias}", { path: { alias: shown.name } })}>
        {shown.name} can then point to any checkpoint without an evaluation, and everybody who writes checkpoints can move it unless it is protected. Evaluations and the alias stay.
      </Confirm>
    );
  }
  const [title, content] = parts(shown, showDialog, close);
  return <Modal opened onClose={close} title={title} returnFocus={false} size={shown.kind === "gate" ? "lg" : undefined}>{content}</Modal>;
}

function parts(shown: Form, showDialog: Props["showDialog"], close: () => void): [string, ReactNode] {
  const { kind, name } = shown;
  switch (kind) {
    case "gate": return [name === "" ? "Set a promotion gate" : `Gate of ${name}`, <Suspense fallback={<Waiting />}><SetGate name={name} done={close} /></Suspense>];
    case "set": return [name === "" ? "Set an alias" : `Point ${name} to a checkpoint`, <SetAlias name={name} checkpoint={shown.checkpoint} showDialog={showDialog} done={close} />];
  }
}
