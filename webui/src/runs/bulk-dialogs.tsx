import "@mantine/core/styles/Pill.css";
import "@mantine/core/styles/PillsInput.css";
import { Button, Group, Modal, Stack, TagsInput, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { patch, post } from "../api/http.ts";
import type { Run } from "../api/schema.d.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { changedTags, forEachRun, stopPlan, type Failure } from "./run-selection.ts";

type Props = { runs: Run[]; onClose: () => void };

const count = (number: number, what = "run") => `${number} ${what}${number === 1 ? "" : "s"}`;

/** Applies an action to runs and refreshes the list. The dialog closes when all went well, else it names the failures. */
function useBulk(action: (run: Run) => Promise<unknown>, onClose: () => void, done: (runs: number) => string) {
  const client = useQueryClient();
  const [failures, setFailures] = useState<Failure<Run>[]>([]);
  const mutation = useMutation({
    mutationFn: (runs: Run[]) => forEachRun(runs, action),
    onSuccess: (failed, runs) => {
      void client.invalidateQueries({ queryKey: ["runs"] });
      for (const run of runs) void client.invalidateQueries({ queryKey: ["run", run.id], exact: true });
      setFailures(failed);
      if (failed.length < runs.length) notifications.show({ message: done(runs.length - failed.length) });
      if (failed.length === 0) onClose();
    },
  });
  return { apply: mutation.mutate, isPending: mutation.isPending, failures };
}

function Failures({ failures }: { failures: Failure<Run>[] }) {
  return <>{failures.map(({ run, error }) => <div key={run.id}><Text size="sm" fw={560}>{run.name}</Text><ProblemNotice error={error} /></div>)}</>;
}

/** Says what a stop of the selected runs does to each of them, and does it. */
export function StopDialog({ runs, onClose }: Props) {
  const { stop, cancel, left } = stopPlan(runs);
  const { apply, isPending, failures } = useBulk(
    (run) => post(run.status === "QUEUED" ? "/api/v1/runs/{run_id}/cancel" : "/api/v1/runs/{run_id}/stop", { path: { run_id: run.id } }),
    onClose, (number) => `${count(number)} stopping`,
  );
  return (
    <Modal opened onClose={onClose} title={`Stop ${count(stop.length + cancel.length)}?`}>
      <Stack gap="sm">
        <Failures failures={failures} />
        {stop.length > 0 && <Text size="sm">{count(stop.length)} finish{stop.length === 1 ? "es" : ""} the current train step, commit{stop.length === 1 ? "s" : ""} a checkpoint and release{stop.length === 1 ? "s" : ""} slots. Groups that are not trained yet are dropped.</Text>}
        {cancel.length > 0 && <Text size="sm">{count(cancel.length)} leave{cancel.length === 1 ? "s" : ""} the queue without having used slots.</Text>}
        {left.length > 0 && <Text size="sm" c="dimmed">{count(left.length)} of the selection {left.length === 1 ? "is" : "are"} a draft, stopping or ended, and stay{left.length === 1 ? "s" : ""} as {left.length === 1 ? "it is" : "they are"}.</Text>}
        <Group justify="flex-end" gap={8}>
          <Button variant="default" onClick={onClose} data-autofocus>Keep runs</Button>
          <Button color="red" loading={isPending} onClick={() => apply([...stop, ...cancel])} data-testid="confirm-bulk-stop">Stop {count(stop.length + cancel.length)}</Button>
        </Group>
      </Stack>
    </Modal>
  );
}

/** Adds tags to the selected runs and removes others. */
export function TagDialog({ runs, onClose }: Props) {
  const present = [...new Set(runs.flatMap((run) => run.tags))].sort();
  const [add, setAdd] = useState<string[]>([]);
  const [remove, setRemove] = useState<string[]>([]);
  const changed = runs.filter((run) => changedTags(run.tags, add, remove) !== null);
  const { apply, isPending, failures } = useBulk(
    (run) => patch("/api/v1/runs/{run_id}", { path: { run_id: run.id }, body: { tags: changedTags(run.tags, add, remove) ?? run.tags } }),
    onClose, (number) => `${count(number)} tagged`,
  );
  return (
    <Modal opened onClose={onClose} title={`Tag ${count(runs.length)}`}>
      <form onSubmit={(event) => { event.preventDefault(); apply(changed); }}>
        <Stack gap="sm">
          <Failures failures={failures} />
          <TagsInput size="xs" label="Add" description="Letters, digits and . _ : / -. Press Enter after each tag." value={add} onChange={setAdd} splitChars={[",", " "]} acceptValueOnBlur data-autofocus data-testid="add-tags" />
          {present.length > 0 && <TagsInput size="xs" label="Remove" description={`Tags of the selected runs: ${present.join(", ")}`} data={present} value={remove} onChange={(values) => setRemove(values.filter((value) => present.includes(value)))} />}
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={isPending} disabled={changed.length === 0} data-testid="confirm-bulk-tag">{changed.length === 0 ? "No change" : `Change ${count(changed.length)}`}</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
