import { Modal } from "@mantine/core";

import { ShortcutsTable } from "./shortcuts-table.tsx";

export function ShortcutsHelp({ onClose }: { onClose: () => void }) {
  return <Modal opened onClose={onClose} title="Keyboard shortcuts" size="sm"><ShortcutsTable /></Modal>;
}
