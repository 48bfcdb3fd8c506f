import { Button, Checkbox, Group, Stack, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { CHECKPOINTS, checkpointAliases, checkpointGates, gateResult } from "../api/checkpoint-queries.ts";
import { post, put } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { GateResult } from "../api/schema.d.ts";
import { ProblemNotice } from "../common/notices.tsx";
import type { AliasDialog } from "./alias-dialogs.tsx";
import { refusalText } from "./alias-state.ts";
import { GateChecks } from "./gate-checks.tsx";
import { GateSummary } from "./gate-summary.tsx";

const TYPING_MILLISECONDS = 400;

type Props = { name: string; checkpoint: string; done: () => void; showDialog: (dialog: AliasDialog) => void };

/** Points an alias to a checkpoint. The gate's result is shown before the alias is moved. */
export function SetAlias({ name: given, checkpoint: givenCheckpoint, done, showDialog }: Props) {
  const [name, setName] = useState(given);
  const [reference, setReference] = useState(givenCheckpoint);
  const [force, setForce] = useState(false);
  const aliases = useQuery(checkpointAliases).data?.data ?? [];
  const gates = useQuery(checkpointGates).data?.data ?? [];
  const scopes = useQuery(queries.me).data?.scopes ?? [];
  const isAdmin = scopes.includes("checkpoints:admin");
  const alias = aliases.find((one) => one.name === name);
  const gate = gates.find((one) => one.alias === name);
  const [isProtected, setProtected] = useState<boolean | null>(null); // null: as it is
  const [settled] = useDebouncedValue(reference.trim(), TYPING_MILLISECONDS);
  const result = useQuery({ ...gateResult(name, settled), enabled: gate !== undefined && settled !== "", retry: false });
  const refusal = result.data === undefined ? null : refusalText(result.data.status, scopes);
  const client = useQueryClient();
  const move = useMutation({
    mutationFn: () => put("/api/v1/checkpoint-aliases/{alias}", {
      path: { alias: name },
      // `expected`: when somebody else moved it since this page read it, nothing is overwritten.
      body: { checkpoint: reference.trim(), protected: isProtected, expected: alias?.checkpoint.id ?? null, force: force && refusal !== null },
    }),
    onSuccess: ({ checkpoint }) => {
      notifications.show({ message: `${name} points to ${checkpoint.run.name}, step ${checkpoint.step}` });
      done();
    },
    onSettled: () => void client.invalidateQueries({ queryKey: CHECKPOINTS }),
  });
  const isRefused = gate !== undefined && refusal !== null && !force;
  return (
    <form onSubmit={(event) => { event.preventDefault(); move.mutate(); }}>
      <Stack gap="sm">
        <ProblemNotice error={move.error} />
        {given === "" && <TextInput label="Alias" description="small letters, digits, _ and -, such as prod or best" required data-autofocus value={name} onChange={(event) => { setName(event.currentTarget.value); setForce(false); }} />}
        <TextInput label="Checkpoint" description="an ID, another alias, or a run's name or ID with a step: letters@20, letters@latest" required data-autofocus={given !== ""} classNames={{ input: "mono" }} value={reference} onChange={(event) => { setReference(event.currentTarget.value); setForce(false); }} />
        {alias !== undefined && <Text size="xs" c="dimmed">{name} points to {alias.checkpoint.run.name}, step {alias.checkpoint.step} now.</Text>}
        {(alias !== undefined || gate !== undefined) && <GateSummary name={name} gate={gate ?? null} isAdmin={isAdmin} showDialog={showDialog} />}
        {gate !== undefined && settled === "" && <Text size="xs" c="dimmed">Name a checkpoint to see whether it passes.</Text>}
        {gate !== undefined && <ProblemNotice error={result.error} />}
        {gate !== undefined && result.data !== undefined && (
          <div data-testid="gate">
            <GateChecks result={result.data} />
            {refusal !== null && <Text size="xs" mt={4}>{refusal}</Text>}
            {result.data.status !== "pending" && refusal !== null && scopes.includes("runs:write") && <RunGate name={name} result={result.data} />}
            {refusal !== null && isAdmin && <Checkbox mt={8} color="red" label={`Override the gate of ${name}`} description="The alias shows that it was overridden, and the audit log has an entry." checked={force} onChange={(event) => setForce(event.currentTarget.checked)} />}
          </div>
        )}
        {isAdmin && <Checkbox label="Protected" description="Only roles with checkpoints:admin can remove it or, without a gate, move it." checked={isProtected ?? alias?.protected ?? false} onChange={(event) => setProtected(event.currentTarget.checked)} />}
        <Group justify="flex-end" gap={8}>
          <Button variant="default" onClick={done}>Cancel</Button>
          <Button type="submit" color={force ? "red" : undefined} loading={move.isPending} disabled={name === "" || reference.trim() === "" || isRefused} data-testid="confirm-set-alias">{force ? "Override the gate and move" : alias === undefined ? "Set alias" : "Move alias"}</Button>
        </Group>
      </Stack>
    </form>
  );
}

/** Starts the gate's eval run. Its result appears here when it has ended. */
function RunGate({ name, result }: { name: string; result: GateResult }) {
  const client = useQueryClient();
  const run = useMutation({
    mutationFn: () => post("/api/v1/checkpoint-gates/{alias}/runs", { path: { alias: name }, body: { checkpoint: result.checkpoint } }),
    onSettled: () => void client.invalidateQueries({ queryKey: [...CHECKPOINTS, "gate-result", name] }),
  });
  return (
    <>
      <ProblemNotice error={run.error} />
      <Button mt={8} variant="default" loading={run.isPending} onClick={() => run.mutate()}>Run the gate's evaluation</Button>
    </>
  );
}
