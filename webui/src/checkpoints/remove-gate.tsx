import { Button, Group, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";

import { CHECKPOINTS } from "../api/checkpoint-queries.ts";
import { remove } from "../api/http.ts";
import { ProblemNotice } from "../common/notices.tsx";

export function RemoveGate({ name, done }: { name: string; done: () => void }) {
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => remove("/api/v1/checkpoint-gates/{alias}", { path: { alias: name } }),
    onSuccess: done,
    onSettled: () => void client.invalidateQueries({ queryKey: CHECKPOINTS }),
  });
  return (
    <>
      <ProblemNotice error={act.error} />
      <Text size="sm" mb="md">{name} can then point to any checkpoint without an evaluation, and everybody who writes checkpoints can move it unless it is protected. Evaluations and the alias stay.</Text>
      <Group justify="flex-end" gap={8}>
        <Button variant="default" onClick={done} data-autofocus>Cancel</Button>
        <Button color="red" loading={act.isPending} onClick={() => act.mutate()} data-testid="confirm-remove-gate">Remove gate</Button>
      </Group>
    </>
  );
}
