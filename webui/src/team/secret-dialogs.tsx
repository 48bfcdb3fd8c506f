import "@mantine/core/styles/PasswordInput.css";
import "@mantine/core/styles/Pill.css";
import "@mantine/core/styles/PillsInput.css";
import { Button, Checkbox, Group, Modal, PasswordInput, Stack, TagsInput, Text, TextInput } from "@mantine/core";
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { post, remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import { secrets as secretsQuery } from "../api/team-queries.ts";
import type { Secret, SecretSetRequest } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { fieldError, otherError } from "../common/field-error.ts";
import { ago } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { StatusBadge } from "../common/status.tsx";
import classes from "./team.module.css";

type Job = NonNullable<SecretSetRequest["jobs"]>[number];
const TRAINER: Job = "trainer"; // the only job that runs code which reads a variable
const REWARD: Job = "reward"; // sends it to the service of the rewards http and judge

/** Sets a secret, or replaces the value and the users of one. */
export function SetSecret({ secret, onClose }: { secret?: Secret; onClose: () => void }) {
  const [name, setName] = useState(secret?.name ?? "");
  const [value, setValue] = useState("");
  const [forTrainer, setForTrainer] = useState(secret === undefined || secret.jobs.includes(TRAINER));
  const [forReward, setForReward] = useState(secret?.jobs.includes(REWARD) ?? false);
  const [hosts, setHosts] = useState(secret?.hosts ?? []);
  const client = useQueryClient();
  const others = (secret?.jobs ?? []).filter((job) => job !== TRAINER && job !== REWARD) as Job[];
  const jobs = [...others, ...(forTrainer ? [TRAINER] : []), ...(forReward ? [REWARD] : [])];
  const save = useMutation({
    mutationFn: () => post("/api/v1/secrets", { body: { name, value, hosts, jobs } }),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: secretsQuery.queryKey });
      onClose();
    },
  });
  return (
    <Modal opened onClose={onClose} title={secret === undefined ? "Set a secret" : `Replace ${secret.name}`}>
      <form onSubmit={(event) => { event.preventDefault(); save.mutate(); }} autoComplete="off">
        <Stack gap="sm">
          {secret === undefined
            ? <TextInput label="Name" description="Capitals, digits and _, such as WANDB_KEY. A name that is taken is replaced." required maxLength={64} data-autofocus value={name} onChange={(event) => setName(event.currentTarget.value)} error={fieldError(save.error, "/name")} />
            : <Text size="sm">The new value replaces the old one, and so do the users below. A running job keeps the value that it has; the next start uses the new one.</Text>}
          <PasswordInput size="xs" label="Value" description="For jobs at least 8 characters. It is encrypted and never shown again." required data-autofocus={secret !== undefined} autoComplete="new-password" value={value} onChange={(event) => setValue(event.currentTarget.value)} error={fieldError(save.error, "/value")} />
          <Checkbox size="xs" label="The trainer of a run may get it" description="Runs that bring a loss of their own can read it there, as an environment variable. Anyone who may start runs can then read it." checked={forTrainer} onChange={(event) => setForTrainer(event.currentTarget.checked)} error={fieldError(save.error, "/jobs")} />
          <Checkbox size="xs" label="The rewards http and judge may send it" description="To the hosts below, as bearer token. No code of a run reads it." checked={forReward} onChange={(event) => setForReward(event.currentTarget.checked)} />
          <TagsInput size="xs" label="Hosts" description="Imports by URL, and rewards if allowed, send it to these hosts as Authorization. Press Enter after each host." value={hosts} onChange={setHosts} splitChars={[",", " "]} acceptValueOnBlur error={fieldError(save.error, "/hosts")} />
          <ProblemNotice error={otherError(save.error, ["/name", "/value", "/jobs", "/hosts"])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={save.isPending} disabled={name === "" || value === ""}>{secret === undefined ? "Set secret" : "Replace"}</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

const ENDED: readonly string[] = ["SUCCEEDED", "STOPPED", "FAILED"];

const useRunsOf = (secret: Secret) => {
  const query = useInfiniteQuery(queries.runs({ secret: secret.name }, 20));
  return { query, runs: query.data?.pages.flatMap((page) => page.data) ?? [] };
};

export function DeleteSecret({ secret, onClose }: { secret: Secret; onClose: () => void }) {
  const { query, runs } = useRunsOf(secret);
  const active = runs.filter(({ status }) => !ENDED.includes(status));
  return (
    <Confirm title={`Delete ${secret.name}?`} action="Delete" changes={[secretsQuery.queryKey]} onClose={onClose} run={() => remove("/api/v1/secrets/{secret_name}", { path: { secret_name: secret.name } })}>
      <p style={{ margin: 0 }}>Jobs that run keep the value. A job that is about to start fails its run with the reason &ldquo;secret missing&rdquo;, and imports that name it fail. You cannot undo this, but you can set it again.</p>
      {query.isPending ? <Waiting label="Looking for runs that name it" /> : active.length > 0 && (
        <>
          <p>Runs that have not ended and name it:</p>
          <ul className={classes.effects}>{active.map((run) => <li key={run.id}><Link to={`/runs/${run.id}`}>{run.name}</Link></li>)}</ul>
        </>
      )}
    </Confirm>
  );
}

/** The runs whose spec names the secret, newest first. */
export function SecretRuns({ secret, onClose }: { secret: Secret; onClose: () => void }) {
  const { query, runs } = useRunsOf(secret);
  return (
    <Modal opened onClose={onClose} title={`Runs that name ${secret.name}`}>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.isPending ? <Waiting label="Loading runs" /> : runs.length === 0 && query.data !== undefined ? <Text size="sm">No run names it. A spec does under <code className="mono">secrets</code>.</Text> : (
        <Stack gap={8}>
          {runs.map((run) => (
            <Group key={run.id} gap={8} wrap="nowrap" justify="space-between">
              <Link to={`/runs/${run.id}`}>{run.name}</Link>
              <Group gap={8} wrap="nowrap"><span className={classes.soft}>{ago(run.created_at)}</span><StatusBadge status={run.status} /></Group>
            </Group>
          ))}
        </Stack>
      )}
      <More query={query} />
    </Modal>
  );
}
