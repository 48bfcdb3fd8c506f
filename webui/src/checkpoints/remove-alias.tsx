import { Button, Group, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";

import { CHECKPOINTS } from "../api/checkpoint-queries.ts";
import { remove } from "../api/http.ts";
import { ProblemNotice } from "../common/notices.tsx";

export function RemoveAlias({ name, done }: { name: string; done: () => void }) {
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => remove("/api/v1/checkpoint-aliases/{alias}", { path: { alias: name } }),
    onSuccess: done,
    onSettled: () => void client.invalidateQueries({ queryKey: CHECKPOINTS }),
  });
  return (
    <>
      <ProblemNotice error={act.error} />
      <Text size="sm" mb="md">The checkpoint stays, but the retention policy may delete it from now on. Specs and commands that name {name} fail until it is set again. Active runs are not affected: they use the checkpoint's ID.</Text>
      <Group justify="flex-end" gap={8}>
        <Button variant="default" onClick={done} data-autofocus>Cancel</Button>
        <Button color="red" loading={act.isPending} onClick={() => act.mutate()} data-testid="confirm-remove-alias">Remove alias</Button>
      </Group>
    </>
  );
}
