import { Kbd, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import * as queries from "../api/queries.ts";
import { START, visiblePages } from "./pages.ts";
import { commandKey } from "./shortcut-keys.ts";

const KEYS: [string, string][] = [
  [`${commandKey(navigator.platform)} K`, "Search pages, runs, templates, datasets and checkpoints"], ["/", "Search in the page, or everything"],
  ["j k", "Next and previous run of the list"], ["Enter", "Open the run"], ["x", "Select the run"], ["Esc", "Clear the selection"], ["?", "Keyboard shortcuts"],
];

/** All keys that work on every page, and those of the run list. */
export function ShortcutsTable() {
  const [home, runs, ...pages] = visiblePages(useQuery(queries.me).data);
  const opening = [home!, runs!, START, ...pages].map(({ key, label }): [string, string] => [`g ${key}`, label]);
  return (
    <Table withRowBorders={false}>
      <Table.Tbody>
        {[...opening, ...KEYS].map(([keys, description]) => (
          <Table.Tr key={keys}>
            <Table.Td w={90}>{keys.split(" ").map((key) => <Kbd key={key} mr={4}>{key}</Kbd>)}</Table.Td>
            <Table.Td>{description}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
