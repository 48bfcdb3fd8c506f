import "@mantine/core/styles/NumberInput.css";
import { Button, Group, Modal, NumberInput, Stack, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import { numberAt } from "../common/json.ts";
import { ProblemNotice } from "../common/notices.tsx";

/** The current values: the runtime override if there is one, or else the spec. */
function currentValues(run: Run) {
  return {
    staleness: run.live.max_staleness ?? numberAt(run.spec, "staleness", "max"),
    concurrency: run.live.max_concurrent_groups ?? numberAt(run.spec, "rollout", "max_concurrent_groups"),
    rate: run.live.learning_rate ?? numberAt(run.spec, "trainer", "learning_rate"),
  };
}

/** Change the settings of an active run. Sends only the values that differ from the current ones. */
export default function ChangeDialog({ run, opened, close }: { run: Run; opened: boolean; close: () => void }) {
  return (
    <Modal opened={opened} onClose={close} title="Change this run">
      {opened && <ChangeForm run={run} done={close} />}
    </Modal>
  );
}

function ChangeForm({ run, done }: { run: Run; done: () => void }) {
  const current = currentValues(run);
  const [staleness, setStaleness] = useState<number | string>(current.staleness ?? "");
  const [concurrency, setConcurrency] = useState<number | string>(current.concurrency ?? "");
  const [rate, setRate] = useState<number | string>(current.rate ?? "");
  const client = useQueryClient();

  const changes = {
    ...(staleness !== "" && staleness !== current.staleness ? { staleness: { max: Number(staleness) } } : {}),
    ...(concurrency !== "" && concurrency !== current.concurrency ? { rollout: { max_concurrent_groups: Number(concurrency) } } : {}),
    ...(rate !== "" && rate !== current.rate ? { trainer: { learning_rate: Number(rate) } } : {}),
  };
  const isUnchanged = Object.keys(changes).length === 0;
  const change = useMutation({
    mutationFn: () => post("/api/v1/runs/{run_id}/runtime", { path: { run_id: run.id }, body: { changes } }),
    onSuccess: (changed) => {
      client.setQueryData(queries.run(run.id).queryKey, changed);
      notifications.show({ message: `${run.name} applies the change within seconds and records an event` });
      done();
    },
  });
  return (
    <form onSubmit={(event) => { event.preventDefault(); change.mutate(); }}>
      <Stack gap="sm">
        <ProblemNotice error={change.error} />
        <NumberInput label="Max staleness (η)" description="The admission gate applies it immediately. A lower bound applies to batches after all groups admitted before the change are trained." min={0} allowDecimal={false} value={staleness} onChange={setStaleness} data-autofocus />
        <NumberInput label="Concurrent groups" description="Groups in flight at the same time, over all engines." min={1} allowDecimal={false} value={concurrency} onChange={setConcurrency} />
        <NumberInput label="Learning rate" description="Applies from the next train step." min={0} step={1e-5} decimalScale={12} value={rate} onChange={setRate} />
        <Text size="xs" c="dimmed">The submitted spec does not change. Each change is recorded as an event of the run.</Text>
        <Group justify="flex-end" gap={8}>
          <Button variant="default" onClick={done}>Cancel</Button>
          <Button type="submit" loading={change.isPending} disabled={isUnchanged} data-testid="confirm-change">Apply changes</Button>
        </Group>
      </Stack>
    </form>
  );
}
