import { Button, Checkbox, Group, Modal, NumberInput, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { IconAdjustments } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import { numberAt } from "../common/json.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { canPause } from "./ended.ts";

/** What is in force now: the change, where there was one, else the spec. */
function inForce(run: Run) {
  return {
    staleness: run.live.max_staleness ?? numberAt(run.spec, "staleness", "max"),
    concurrency: run.live.max_concurrent_groups ?? numberAt(run.spec, "rollout", "max_concurrent_groups"),
    rate: run.live.learning_rate ?? numberAt(run.spec, "trainer", "learning_rate"),
  };
}

/** Changes a run while it goes on; only what differs from what is in force is sent. */
export function ChangeButton({ run }: { run: Run }) {
  const [opened, { open, close }] = useDisclosure(false);
  if (run.kind !== "rl" || !canPause(run.status)) return null;
  return (
    <>
      <Button variant="default" leftSection={<IconAdjustments size={14} />} onClick={open} data-testid="change">Change</Button>
      <Modal opened={opened} onClose={close} title="Change this run while it goes on">
        {opened && <ChangeForm run={run} done={close} />}
      </Modal>
    </>
  );
}

function ChangeForm({ run, done }: { run: Run; done: () => void }) {
  const now = inForce(run);
  const [staleness, setStaleness] = useState<number | string>(now.staleness ?? "");
  const [concurrency, setConcurrency] = useState<number | string>(now.concurrency ?? "");
  const [rate, setRate] = useState<number | string>(now.rate ?? "");
  const [checkpoint, setCheckpoint] = useState(false);
  const [evaluate, setEvaluate] = useState(false);
  const client = useQueryClient();

  const changes = {
    ...(staleness !== "" && staleness !== now.staleness ? { staleness: { max: staleness } } : {}),
    ...(concurrency !== "" && concurrency !== now.concurrency ? { rollout: { max_concurrent_groups: concurrency } } : {}),
    ...(rate !== "" && rate !== now.rate ? { trainer: { learning_rate: rate } } : {}),
  };
  const nothing = Object.keys(changes).length === 0 && !checkpoint && !evaluate;
  const change = useMutation({
    mutationFn: () => post("/api/v1/runs/{run_id}/runtime", { path: { run_id: run.id }, body: { changes, checkpoint, evaluate } }),
    onSuccess: (changed) => {
      client.setQueryData(queries.run(run.id).queryKey, changed);
      notifications.show({ message: `${run.name} takes it over within seconds; its events say when` });
      done();
    },
  });
  const running = run.status === "RUNNING";
  return (
    <form onSubmit={(event) => { event.preventDefault(); change.mutate(); }}>
      <Stack gap="sm">
        <ProblemNotice error={change.error} />
        <NumberInput label="Max staleness (η)" description="The gate obeys at once; batches obey a lower bound once the groups admitted before it are trained." min={0} allowDecimal={false} value={staleness} onChange={setStaleness} data-autofocus />
        <NumberInput label="Concurrent groups" description="In flight at once, over all engines." min={1} allowDecimal={false} value={concurrency} onChange={setConcurrency} />
        <NumberInput label="Learning rate" description="Of the next train steps." min={0} step={1e-5} decimalScale={12} value={rate} onChange={setRate} />
        <Checkbox label="Take a checkpoint after the next train step" checked={checkpoint} disabled={!running} onChange={(event) => setCheckpoint(event.currentTarget.checked)} />
        <Checkbox label="Evaluate the newest version" checked={evaluate} disabled={!running || run.spec.evaluation === null} onChange={(event) => setEvaluate(event.currentTarget.checked)} />
        <Text size="xs" c="dimmed">The spec that was submitted stays as it is; each change is an event of the run.</Text>
        <Group justify="flex-end" gap={8}>
          <Button variant="default" onClick={done}>Leave it</Button>
          <Button type="submit" loading={change.isPending} disabled={nothing} data-testid="confirm-change">Change the run</Button>
        </Group>
      </Stack>
    </form>
  );
}
