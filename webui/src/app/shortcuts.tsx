import { Kbd, Modal, Table } from "@mantine/core";
import { useDisclosure, useHotkeys } from "@mantine/hooks";
import { useLayoutEffect, useRef } from "react";
import { useNavigate } from "react-router";

const PATHS: Record<string, string> = { r: "/runs", n: "/runs/new", d: "/datasets", m: "/models", p: "/pool", t: "/tokens" };

const HELP: [string, string][] = [
  ["g r", "Runs"], ["g n", "Start a run"], ["g d", "Datasets"], ["g m", "Models"], ["g p", "Pool"], ["g t", "Tokens"], ["/", "Search"], ["?", "Keyboard shortcuts"],
];

/** Keyboard shortcuts: `g` and a letter opens a page, `/` searches, `?` lists them. Inactive in text fields. */
export function Shortcuts() {
  const navigate = useNavigate();
  const [opened, { open, close }] = useDisclosure(false);
  const lastG = useRef(0);
  useHotkeys([["shift+?", open], ["/", () => document.querySelector<HTMLInputElement>("input[type=search]")?.focus()]]);
  useLayoutEffect(() => { // in a layout effect, so that shortcuts work as soon as the page is visible
    const onKeyDown = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.metaKey || event.ctrlKey || event.altKey || target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      if (event.key === "g") {
        lastG.current = event.timeStamp;
      } else if (event.timeStamp - lastG.current < 1_200 && PATHS[event.key] !== undefined) {
        lastG.current = 0;
        void navigate(PATHS[event.key]!);
      }
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [navigate]);
  return (
    <Modal opened={opened} onClose={close} title="Keyboard shortcuts" size="xs">
      <Table withRowBorders={false}>
        <Table.Tbody>
          {HELP.map(([keys, description]) => (
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
