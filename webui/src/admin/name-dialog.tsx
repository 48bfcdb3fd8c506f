import { Button, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient, type QueryKey } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { fieldError, otherError } from "../common/field-error.ts";
import { ProblemNotice } from "../common/notices.tsx";

type Props = { title: string; action: string; help: string; children: ReactNode; create: (name: string) => Promise<unknown>; changes: QueryKey[]; onClose: () => void; onDone?: (name: string) => void };

/** Creates what needs only a name: a team, a project or a pool. */
export function NameDialog({ title, action, help, children, create, changes, onClose, onDone }: Props) {
  const [name, setName] = useState("");
  const client = useQueryClient();
  const made = useMutation({
    mutationFn: () => create(name.trim()),
    onSuccess: () => {
      for (const queryKey of changes) void client.invalidateQueries({ queryKey });
      notifications.show({ message: `${name.trim()} is created` });
      onClose();
      onDone?.(name.trim());
    },
  });
  return (
    <Modal opened onClose={onClose} title={title}>
      <form onSubmit={(event) => { event.preventDefault(); made.mutate(); }}>
        <Stack gap="sm">
          <TextInput label="Name" description={help} required maxLength={120} data-autofocus value={name} onChange={(event) => setName(event.currentTarget.value)} error={fieldError(made.error, "/name", ["name_taken"])} />
          <Text size="sm">{children}</Text>
          <ProblemNotice error={otherError(made.error, ["/name"], ["name_taken"])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={made.isPending} disabled={name.trim() === ""}>{action}</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
