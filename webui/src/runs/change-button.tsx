import { ActionIcon, Button, Menu, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { IconAdjustments, IconChartDots, IconChevronDown, IconDeviceFloppy } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import { canPause } from "./ended.ts";

const ChangeDialog = lazy(() => import("./change-dialog.tsx"));

/** Opens the settings that an active run can change, and asks it for a checkpoint or an evaluation now. */
export function ChangeButton({ run }: { run: Run }) {
  const [opened, { open, close }] = useDisclosure(false);
  const [wasOpened, setWasOpened] = useState(false); // the code of the dialog loads when it first opens
  if (run.kind !== "rl" || !canPause(run.status)) return null;
  return (
    <>
      <Button.Group>
        <Button variant="default" leftSection={<IconAdjustments size={14} />} onClick={() => { setWasOpened(true); open(); }} data-testid="change">Change</Button>
        <AskNow run={run} />
      </Button.Group>
      {wasOpened && <Suspense fallback={null}><ChangeDialog run={run} opened={opened} close={close} /></Suspense>}
    </>
  );
}

type Asked = { checkpoint: true } | { evaluate: true };

function AskNow({ run }: { run: Run }) {
  const client = useQueryClient();
  const ask = useMutation({
    mutationFn: (asked: Asked) => post("/api/v1/runs/{run_id}/runtime", { path: { run_id: run.id }, body: asked }),
    onSuccess: (changed, asked) => {
      client.setQueryData(queries.run(run.id).queryKey, changed);
      notifications.show({ message: "checkpoint" in asked ? `${run.name} saves a checkpoint after its current train step` : `${run.name} evaluates its newest policy version; the result appears on the reward chart` });
    },
    onError: (error) => notifications.show({ color: "red", message: error.message }),
  });
  const why = run.status !== "RUNNING" ? "The run is not running." : null;
  const whyNoEvaluation = why ?? (run.spec.evaluation === null ? "Its spec has no evaluation section." : null);
  return (
    <Menu position="bottom-end" width={280}>
      <Menu.Target><ActionIcon variant="default" size={30} loading={ask.isPending} aria-label="Checkpoint or evaluate now" data-testid="ask-now"><IconChevronDown size={14} /></ActionIcon></Menu.Target>
      <Menu.Dropdown>
        <Menu.Item leftSection={<IconDeviceFloppy size={14} />} disabled={why !== null} onClick={() => ask.mutate({ checkpoint: true })}>Save a checkpoint now<Text size="xs" c="dimmed">{why ?? "After the current train step, without a pause"}</Text></Menu.Item>
        <Menu.Item leftSection={<IconChartDots size={14} />} disabled={whyNoEvaluation !== null} onClick={() => ask.mutate({ evaluate: true })}>Evaluate now<Text size="xs" c="dimmed">{whyNoEvaluation ?? "The newest policy version, beside the rollouts"}</Text></Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
