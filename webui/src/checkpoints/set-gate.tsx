import { Button, Group, Select, Stack, Text, Textarea, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { CHECKPOINTS, checkpointGates } from "../api/checkpoint-queries.ts";
import { get, post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { GateChangeRequest } from "../api/schema.d.ts";
import { fieldError, otherError } from "../common/field-error.ts";
import type { Json } from "../common/json.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { assertionsOf, formOf, gateText, readSpec } from "./gate-form.ts";

const AT_FIELDS = ["/alias", "/spec", "/assertions"];
const EVAL_RUNS = 20;

/** Sets or replaces the promotion gate of an alias: an evaluation, and what its metrics must fulfill. */
export default function SetGate({ name: given, done }: { name: string; done: () => void }) {
  const gates = useQuery(checkpointGates);
  const gate = gates.data?.data.find(({ alias }) => alias === given);
  if (given !== "" && gates.isPending) return null; // the form begins with what the gate says now
  return <Form key={gate?.updated_at} given={given} start={formOf(gate)} isNew={gate === undefined} done={done} />;
}

function Form({ given, start, isNew, done }: { given: string; start: { spec: string; assertions: string }; isNew: boolean; done: () => void }) {
  const [alias, setAlias] = useState(given);
  const [form, setForm] = useState(start);
  const read = readSpec(form.spec);
  const assertions = assertionsOf(form.assertions);
  const client = useQueryClient();
  const save = useMutation({
    mutationFn: (spec: Json) => post("/api/v1/checkpoint-gates", { body: { alias, assertions, spec: spec as GateChangeRequest["spec"] } }),
    onSuccess: () => {
      notifications.show({ message: `${alias} has a gate with ${assertions.length} assertion${assertions.length === 1 ? "" : "s"}` });
      done();
    },
    onSettled: () => void client.invalidateQueries({ queryKey: CHECKPOINTS }),
  });
  return (
    <form onSubmit={(event) => { event.preventDefault(); if ("spec" in read) save.mutate(read.spec); }}>
      <Stack gap="sm">
        <Text size="sm">A checkpoint must pass this evaluation before the alias can point to it. Datasets, rewards and workflows are pinned to the versions of today.</Text>
        <ProblemNotice error={otherError(save.error, AT_FIELDS)} />
        {given === "" && <TextInput label="Alias" description="small letters, digits, _ and -, such as prod" required data-autofocus value={alias} onChange={(event) => setAlias(event.currentTarget.value)} error={fieldError(save.error, "/alias")} />}
        <LikeRun onChoose={(spec) => setForm((old) => ({ ...old, spec }))} />
        <Textarea
          label="Evaluation" description="an eval spec without its model: dataset, reward, evaluation, rollout" required rows={6} resize="vertical" spellCheck={false} classNames={{ input: "mono" }}
          value={form.spec} onChange={(event) => { const spec = event.currentTarget.value; setForm((old) => ({ ...old, spec })); }} error={"fault" in read ? read.fault : fieldError(save.error, "/spec")}
        />
        <Textarea
          label="Assertions" description="one per line; all must hold. The lower end of the interval (eval/accuracy_low) keeps a lucky sample from passing." required rows={4} resize="vertical" spellCheck={false} classNames={{ input: "mono" }}
          value={form.assertions} onChange={(event) => { const text = event.currentTarget.value; setForm((old) => ({ ...old, assertions: text })); }} error={fieldError(save.error, "/assertions")}
        />
        {!isNew && <Text size="xs" c="dimmed">Evaluations with another dataset version, reward, length limit or fewer rows no longer count. The alias stays where it points.</Text>}
        <Group justify="flex-end" gap={8}>
          <Button variant="default" onClick={done}>Cancel</Button>
          <Button type="submit" loading={save.isPending} disabled={alias === "" || "fault" in read || assertions.length === 0} data-testid="confirm-set-gate">{isNew ? "Set gate" : "Replace gate"}</Button>
        </Group>
      </Stack>
    </form>
  );
}

/** Takes the evaluation from an eval run of the project, so that its result counts for its checkpoint at once. */
function LikeRun({ onChoose }: { onChoose: (text: string) => void }) {
  const runs = useInfiniteQuery(queries.runs({ kind: "eval" }, EVAL_RUNS));
  const take = useMutation({
    mutationFn: (id: string) => get("/api/v1/runs/{run_id}", { path: { run_id: id } }),
    onSuccess: ({ spec }) => onChoose(gateText(spec as Json)),
  });
  const found = runs.data?.pages[0]?.data ?? [];
  if (runs.isSuccess && found.length === 0) return null;
  return (
    <Select
      label="Like the evaluation of" placeholder="an eval run of this project" searchable data={found.map(({ id, name }) => ({ value: id, label: name }))} value={null}
      onChange={(id) => id !== null && take.mutate(id)} error={runs.error?.message ?? take.error?.message}
    />
  );
}
