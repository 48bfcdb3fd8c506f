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

/** Pause, resume and retry: none of them loses anything, so none asks first. */
export function MoveButtons({ run }: { run: Run }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const path = { run_id: run.id };
  const took = (changed: RunDetail, message: string) => {
    client.setQueryData(queries.run(changed.id).queryKey, changed);
    void client.invalidateQueries({ queryKey: ["runs"] });
    notifications.show({ message });
  };
  const pause = useMutation({
    mutationFn: () => post("/api/v1/runs/{run_id}/pause", { path }),
    onSuccess: (changed) => took(changed, `${run.name} ${changed.status === "PAUSED" ? "is paused" : "pauses: it takes a checkpoint and gives its slots back"}`),
  });
  const resume = useMutation({
    mutationFn: () => post("/api/v1/runs/{run_id}/resume", { path }),
    onSuccess: (changed) => took(changed, `${run.name} waits for slots and goes on from its checkpoint`),
  });
  const retry = useMutation({
    mutationFn: () => post("/api/v1/runs/{run_id}/retry", { path }),
    onSuccess: (made) => {
      took(made, `${made.name} is tried again`);
      void navigate(`/runs/${made.id}`);
    },
  });
  return (
    <>
      {canPause(run.status) && <Button variant="default" leftSection={<IconPlayerPause size={14} />} loading={pause.isPending} onClick={() => pause.mutate()} data-testid="pause">Pause</Button>}
      {run.status === "PAUSED" && <Button variant="default" leftSection={<IconPlayerPlay size={14} />} loading={resume.isPending} onClick={() => resume.mutate()} data-testid="resume">Resume</Button>}
      {canRetry(run.status) && <Button variant="default" leftSection={<IconRefresh size={14} />} loading={retry.isPending} onClick={() => retry.mutate()} data-testid="retry">Retry</Button>}
      <ProblemNotice error={pause.error ?? resume.error ?? retry.error} />
    </>
  );
}

export function StopButton({ run }: { run: Run }) {
  const [asked, { open, close }] = useDisclosure(false);
  const client = useQueryClient();
  const queued = run.status === "QUEUED";
  const stop = useMutation({
    mutationFn: () => post(queued ? "/api/v1/runs/{run_id}/cancel" : "/api/v1/runs/{run_id}/stop", { path: { run_id: run.id } }),
    onSuccess: (stopped) => {
      client.setQueryData(queries.run(run.id).queryKey, stopped);
      void client.invalidateQueries({ queryKey: ["runs"] });
      notifications.show({ message: queued ? `${run.name} is cancelled` : `${run.name} is stopping: it finishes its step and commits a checkpoint` });
      close();
    },
  });
  if (!canStop(run.status)) return null;
  return (
    <>
      <Button color="red" variant="light" leftSection={<IconPlayerStop size={14} />} onClick={open} data-testid="stop">{queued ? "Cancel" : "Stop"}</Button>
      <Modal opened={asked} onClose={close} title={queued ? "Cancel this run?" : "Stop this run?"}>
        <ProblemNotice error={stop.error} />
        <Text size="sm" mb="md">
          {queued
            ? <>{run.name} leaves the queue. It has not used any slot.</>
            : <>{run.name} finishes the train step under way, commits a checkpoint and frees its slots. Groups that are generated but not trained are dropped. A new run can start from the checkpoint.</>}
        </Text>
        <Group justify="flex-end" gap={8}>
          <Button variant="default" onClick={close} data-autofocus>Keep it</Button>
          <Button color="red" loading={stop.isPending} onClick={() => stop.mutate()} data-testid="confirm-stop">{queued ? "Cancel the run" : "Stop the run"}</Button>
        </Group>
      </Modal>
    </>
  );
}
