import { Modal } from "@mantine/core";

import { RemoveAlias } from "./remove-alias.tsx";
import { SetAlias } from "./set-alias.tsx";

/** An empty name or checkpoint is chosen in the dialog. */
export type AliasDialog = { kind: "set"; name: string; checkpoint: string } | { kind: "remove"; name: string };

export function AliasDialogs({ shown, close }: { shown: AliasDialog | null; close: () => void }) {
  if (shown === null) return null;
  const title = shown.kind === "remove" ? `Remove the alias ${shown.name}?` : shown.name === "" ? "Set an alias" : `Point ${shown.name} to a checkpoint`;
  return (
    <Modal opened onClose={close} title={title} returnFocus={false}>
      {shown.kind === "remove" ? <RemoveAlias name={shown.name} done={close} /> : <SetAlias name={shown.name} checkpoint={shown.checkpoint} done={close} />}
    </Modal>
  );
}
