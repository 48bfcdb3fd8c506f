import "@mantine/core/styles/Alert.css";
import "@mantine/core/styles/Code.css";
import { Alert, Button, Code, CopyButton, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";

type Props = { what: string; value: string; children: ReactNode; onDone: () => void };

/** A credential that the API returns once, with a button that copies it. */
export function ShownOnce({ what, value, children, onDone }: Props) {
  return (
    <Stack gap="sm">
      <Alert color="yellow" variant="outline" title={`Copy the ${what} now`}>It is not shown again. {children}</Alert>
      <Code block style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }} data-testid="shown-once">{value}</Code>
      <Group justify="flex-end" gap={8}>
        <CopyButton value={value}>{({ copied, copy }) => <Button variant="default" onClick={copy} data-autofocus>{copied ? "Copied" : "Copy"}</Button>}</CopyButton>
        <Button onClick={onDone}>Done</Button>
      </Group>
    </Stack>
  );
}
