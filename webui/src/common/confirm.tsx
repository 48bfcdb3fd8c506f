import { Button, Group, Modal, Stack, Text } from "@mantine/core";
import { useMutation, useQueryClient, type QueryKey } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { ProblemNotice } from "./notices.tsx";

type Props = { title: string; action: string; children: ReactNode; run: () => Promise<unknown>; changes: QueryKey[]; onClose: () => void; onDone?: () => void };

/** A destructive action: says its effects, and does it after a second click. Cancel has the focus. `changes`: queries to fetch again. */
export function Confirm({ title, action, children, run, changes, onClose, onDone }: Props) {
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: run,
    onSuccess: () => {
      onClose();
      onDone?.();
    },
    // Also after a refusal: what the page shows may be what is out of date.
    onSettled: () => { for (const queryKey of changes) void client.invalidateQueries({ queryKey }); },
  });
  return (
    <Modal opened onClose={onClose} title={title}>
      <Stack gap="sm">
        <Text size="sm" component="div">{children}</Text>
        <ProblemNotice error={act.error} />
        <Group justify="flex-end" gap={8}>
          <Button variant="default" onClick={onClose} data-autofocus>Cancel</Button>
          <Button color="red" loading={act.isPending} onClick={() => act.mutate()} data-testid="confirm">{action}</Button>
        </Group>
      </Stack>
    </Modal>
  );
}
