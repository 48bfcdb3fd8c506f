import { Kbd, Modal, Table } from "@mantine/core";

const KEYS: [string, string][] = [
  ["g h", "Home"], ["g r", "Runs"], ["g n", "Start a run"], ["g d", "Datasets"], ["g m", "Models"], ["g p", "Pool"], ["g t", "Tokens"], ["/", "Search"],
  ["j k", "Next and previous run of the list"], ["Enter", "Open the run"], ["x", "Select the run"], ["Esc", "Clear the selection"], ["?", "Keyboard shortcuts"],
];

export function ShortcutsHelp({ onClose }: { onClose: () => void }) {
  return (
    <Modal opened onClose={onClose} title="Keyboard shortcuts" size="xs">
      <Table withRowBorders={false}>
        <Table.Tbody>
          {KEYS.map(([keys, description]) => (
            <Table.Tr key={keys}>
              <Table.Td>{keys.split(" ").map((key) => <Kbd key={key} mr={4}>{key}</Kbd>)}</Table.Td>
              <Table.Td>{description}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  );
}
