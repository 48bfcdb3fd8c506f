import { Kbd, Modal, Table } from "@mantine/core";

import { PAGES, START } from "./pages.ts";
import { commandKey } from "./shortcut-keys.ts";

const KEYS: [string, string][] = [
  ...[PAGES[0]!, PAGES[1]!, START, ...PAGES.slice(2)].map(({ key, label }): [string, string] => [`g ${key}`, label]),
  [`${commandKey(navigator.platform)} K`, "Search pages, runs, datasets and checkpoints"], ["/", "Search in the page, or everything"],
  ["j k", "Next and previous run of the list"], ["Enter", "Open the run"], ["x", "Select the run"], ["Esc", "Clear the selection"], ["?", "Keyboard shortcuts"],
];

export function ShortcutsHelp({ onClose }: { onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title="Keyboard shortcuts" size="sm">
      <Table withRowBorders={false}>
        <Table.Tbody>
          {KEYS.map(([keys, description]) => (
            <Table.Tr key={keys}>
              <Table.Td w={90}>{keys.split(" ").map((key) => <Kbd key={key} mr={4}>{key}</Kbd>)}</Table.Td>
              <Table.Td>{description}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  );
}
