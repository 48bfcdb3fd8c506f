import { Kbd, Modal, Table } from "@mantine/core";
import { useDisclosure, useHotkeys } from "@mantine/hooks";
import { useLayoutEffect, useRef } from "react";
import { useNavigate } from "react-router";

const GO: Record<string, string> = { r: "/runs", n: "/runs/new", d: "/datasets", m: "/models", p: "/pool", t: "/tokens" };

const HELP: [string, string][] = [
  ["g r", "Runs"], ["g n", "Start a run"], ["g d", "Datasets"], ["g m", "Models"], ["g p", "Pool"], ["g t", "Tokens"], ["/", "Search"], ["?", "This list"],
];

/** `g` and a letter goes to a page, `/` searches, `?` lists the keys. Nothing happens while text is typed. */
export function Shortcuts() {
  const navigate = useNavigate();
  const [shown, { open, close }] = useDisclosure(false);
  const lastG = useRef(0);
  useHotkeys([["shift+?", open], ["/", () => document.querySelector<HTMLInputElement>("input[type=search]")?.focus()]]);
  useLayoutEffect(() => { // a key works as soon as the page is seen
    const pressed = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.metaKey || event.ctrlKey || event.altKey || target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      if (event.key === "g") {
        lastG.current = event.timeStamp;
      } else if (event.timeStamp - lastG.current < 1_200 && GO[event.key] !== undefined) {
        lastG.current = 0;
        void navigate(GO[event.key]!);
      }
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, [navigate]);
  return (
    <Modal opened={shown} onClose={close} title="Keys" size="xs">
      <Table withRowBorders={false}>
        <Table.Tbody>
          {HELP.map(([keys, what]) => (
            <Table.Tr key={keys}>
              <Table.Td>{keys.split(" ").map((key) => <Kbd key={key} mr={4}>{key}</Kbd>)}</Table.Td>
              <Table.Td>{what}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Modal>
  );
}
