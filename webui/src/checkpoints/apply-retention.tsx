import { Button, Group, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { CHECKPOINTS, retentionPlan } from "../api/checkpoint-queries.ts";
import { post } from "../api/http.ts";
import { bytes } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { PlanSummary } from "./plan-summary.tsx";
import { countText } from "./retention.ts";

/** Deletes what the project's policy does not keep, after it has shown what that is. */
export function ApplyRetention({ mayApply, done }: { mayApply: boolean; done: () => void }) {
  const { data: plan, error, refetch, isFetching } = useQuery({ ...retentionPlan, staleTime: 0 });
  const client = useQueryClient();
  const apply = useMutation({
    mutationFn: () => post("/api/v1/checkpoint-retention/apply"),
    onSuccess: ({ free, free_bytes }) => {
      notifications.show({ message: `${countText(free.length)} deleted, ${bytes(free_bytes)} freed` });
      done();
    },
    onSettled: () => void client.invalidateQueries({ queryKey: CHECKPOINTS }),
  });
  const count = plan?.free.length ?? 0;
  return (
    <>
      <ProblemNotice error={error ?? apply.error} retry={apply.error === null ? () => void refetch() : undefined} />
      {plan === undefined ? (error === null ? <Waiting label="Calculating" /> : null) : <PlanSummary plan={plan} />}
      {mayApply && count > 0 && <Text size="sm" mt="sm">This cannot be undone: the weights and training states are gone. The rows, their metrics and their lineage stay. What has become needed since the preview is kept.</Text>}
      {!mayApply && <Text size="sm" mt="sm" c="dimmed">Your role cannot apply the policy: that needs checkpoints:admin (operator or admin).</Text>}
      <Group justify="flex-end" gap={8} mt="md">
        <Button variant="default" onClick={done} data-autofocus>{mayApply && count > 0 ? "Cancel" : "Close"}</Button>
        {mayApply && count > 0 && <Button color="red" loading={apply.isPending} disabled={isFetching} onClick={() => apply.mutate()} data-testid="confirm-retention">Delete {countText(count)}, {bytes(plan?.free_bytes)}</Button>}
      </Group>
    </>
  );
}
