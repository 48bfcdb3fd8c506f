import { Button, Group, Modal, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { IconPlayerPause, IconPlayerPlay, IconPlayerStop, IconRefresh } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "react-router";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Run, RunDetail } from "../api/schema.d.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { canPause, canRetry, canStop } from "./ended.ts";

/** Pause, resume and retry. They lose no work, so they need no confirmation. */
export function LifecycleButtons({ run, variant = "default" }: { run: Run; variant?: "default" | "filled" }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const path = { run_id: run.id };
  const onChanged = (changed: RunDetail, message: string) => {
    client.setQueryData(queries.run(changed.id).queryKey, changed);
    void client.invalidateQueries({ queryKey: ["runs"] });
    notifications.show({ message });
  };
  const pause = useMutation({
    mutationFn: () => post("/api/v1/runs/{run_id}/pause", { path }),
    onSuccess: (changed) => onChanged(changed, `${run.name} ${changed.status === "PAUSED" ? "is paused" : "is pausing: it saves a checkpoint and releases its slots"}`),
  });
  const resume = useMutation({
    mutationFn: () => post("/api/v1/runs/{run_id}/resume", { path }),
    onSuccess: (changed) => onChanged(changed, `${run.name} is queued and resumes from its checkpoint`),
  });
  const retry = useMutation({
    mutationFn: () => post("/api/v1/runs/{run_id}/retry", { path }),
    onSuccess: (created) => {
      onChanged(created, `${created.name} is queued as a retry`);
      void navigate(`/runs/${created.id}`);
    },
  });
  return (
    <>
      {canPause(run.status) && <Button variant="default" leftSection={<IconPlayerPause size={14} />} loading={pause.isPending} onClick={() => pause.mutate()} data-testid="pause">Pause</Button>}
      {run.status === "PAUSED" && <Button variant={variant} leftSection={<IconPlayerPlay size={14} />} loading={resume.isPending} onClick={() => resume.mutate()} data-testid="resume">Resume</Button>}
      {canRetry(run.status) && <Button variant={variant} leftSection={<IconRefresh size={14} />} loading={retry.isPending} onClick={() => retry.mutate()} data-testid="retry">Retry</Button>}
      <ProblemNotice error={pause.error ?? resume.error ?? retry.error} />
    </>
  );
}

export function StopButton({ run }: { run: Run }) {
  const [opened, { open, close }] = useDisclosure(false);
  const client = useQueryClient();
  const queued = run.status === "QUEUED";
  const stop = useMutation({
    mutationFn: () => post(queued ? "/api/v1/runs/{run_id}/cancel" : "/api/v1/runs/{run_id}/stop", { path: { run_id: run.id } }),
    onSuccess: (stopped) => {
      client.setQueryData(queries.run(run.id).queryKey, stopped);
      void client.invalidateQueries({ queryKey: ["runs"] });
      notifications.show({ message: queued ? `${run.name} is canceled` : `${run.name} is stopping: it finishes its train step and commits a checkpoint` });
      close();
    },
  });
  if (!canStop(run.status)) return null;
  return (
    <>
      <Button color="red" variant="light" leftSection={<IconPlayerStop size={14} />} onClick={open} data-testid="stop">{queued ? "Cancel" : "Stop"}</Button>
      <Modal opened={opened} onClose={close} title={queued ? "Cancel this run?" : "Stop this run?"}>
        <ProblemNotice error={stop.error} />
        <Text size="sm" mb="md">
          {queued
            ? <>{run.name} leaves the queue. It has not used any slots.</>
            : <>{run.name} finishes its current train step, commits a checkpoint and releases its slots. Groups that are not trained yet are dropped. A new run can start from the checkpoint.</>}
        </Text>
        <Group justify="flex-end" gap={8}>
          <Button variant="default" onClick={close} data-autofocus>Keep run</Button>
          <Button color="red" loading={stop.isPending} onClick={() => stop.mutate()} data-testid="confirm-stop">{queued ? "Cancel run" : "Stop run"}</Button>
        </Group>
      </Modal>
    </>
  );
}
