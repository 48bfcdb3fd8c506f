import { Button, Checkbox, Group, Select, Stack, Text } from "@mantine/core";
import { useMutation, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";

import { checkpoint as checkpointQuery } from "../api/checkpoint-queries.ts";
import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Checkpoint, RunDetail, RunSpecRewardSection } from "../api/schema.d.ts";
import { object, textAt } from "../common/json.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { missingScopeReason } from "../common/permission.ts";
import { checkpointOptions } from "../start/checkpoint-options.ts";
import { modelsOfUrl, optionOf, refOf } from "./models-of-url.ts";
import { OpenPlaygrounds } from "./open-playgrounds.tsx";
import classes from "./playground.module.css";
import { PLAYGROUNDS } from "./playground-queries.ts";

const IDLE = [{ value: "120", label: "2 minutes" }, { value: "600", label: "10 minutes" }, { value: "1800", label: "30 minutes" }, { value: "3600", label: "1 hour" }];

export function OpenForm() {
  const me = useQuery(queries.me).data;
  const reason = me === undefined ? null : missingScopeReason(me.scopes, "runs:write");
  return (
    <>
      <PageHeader title="Playground">Chat with a checkpoint, or with two side by side. Each takes an idle slot, behind every run, until you stop it or leave it idle.</PageHeader>
      <div className={classes.form}>
        <Panel title="Open a playground">{reason === null ? <Form /> : <Empty title="Read-only access">{reason}</Empty>}</Panel>
        <OpenPlaygrounds />
      </div>
    </>
  );
}

function Form() {
  const [search] = useSearchParams();
  const given = modelsOfUrl(search);
  const [models, setModels] = useState<(string | null)[]>([given[0] ? optionOf(given[0]) : null, given[1] ? optionOf(given[1]) : null]);
  const [idle, setIdle] = useState("600");
  const [wantsScores, setWantsScores] = useState(true);
  const choices = useChoices(given.filter(({ kind }) => kind === "checkpoint").map(({ id }) => id));
  const chosen = models.flatMap((option) => (option === null ? [] : refOf(option) ?? []));
  const first = chosen.find(({ kind }) => kind === "checkpoint");
  const runId = choices.checkpoints.find(({ id }) => id === first?.id)?.run.id;
  const { data: run, isLoading } = useQuery({ ...queries.run(runId ?? ""), enabled: runId !== undefined });
  const reward = rewardOf(run);
  const isUndecided = isLoading || choices.isNaming; // whether there is a reward to score with
  const navigate = useNavigate();
  const client = useQueryClient();
  const open = useMutation({
    mutationFn: () => post("/api/v1/playgrounds", {
      body: { models: chosen.map(({ kind, id }) => ({ [kind]: id })), idle_seconds: Number(idle), max_total_tokens: 32_768, reward: wantsScores ? reward : null },
    }),
    onSuccess: ({ id }) => {
      void client.invalidateQueries({ queryKey: PLAYGROUNDS });
      void navigate(`/playground?id=${id}`);
    },
  });
  if (choices.error !== null) return <ProblemNotice error={choices.error} retry={choices.retry} />;
  if (choices.isPending) return <Waiting />;
  if (choices.options.length === 0) return <Empty title="Nothing to chat with yet" action={<Button component={Link} to="/runs/new">Start a run</Button>}>A playground needs a stored checkpoint of a run, or a base model that is ready.</Empty>;
  return (
    <form onSubmit={(event) => { event.preventDefault(); open.mutate(); }}>
      <Stack gap="sm">
        <ProblemNotice error={open.error} />
        <Select label="Model" description="a stored checkpoint, or a base model" required searchable data={choices.options} value={models[0]} onChange={(value) => setModels([value, models[1] ?? null])} nothingFoundMessage="No stored checkpoint or base model has this name" />
        <Select label="Compare with (optional)" description="a second model that gets the same messages; it takes a second slot" searchable clearable data={choices.options} value={models[1]} onChange={(value) => setModels([models[0] ?? null, value])} nothingFoundMessage="No stored checkpoint or base model has this name" />
        {reward !== null && <Checkbox label={`Score replies with the reward of ${run?.name}`} description={`${reward.function ?? reward.name}: each reply shows its reward`} checked={wantsScores} onChange={(event) => setWantsScores(event.currentTarget.checked)} />}
        <Select label="Release the slot after" description="this long without a message" w={200} allowDeselect={false} data={IDLE} value={idle} onChange={(value) => setIdle(value ?? "600")} />
        <Text size="xs" c="dimmed">It waits while no slot is idle, and ends when a waiting run needs its slot.</Text>
        <Group justify="flex-end"><Button type="submit" loading={open.isPending} disabled={models[0] === null || isUndecided}>Open playground</Button></Group>
      </Stack>
    </form>
  );
}

/** What can be chatted with: stored checkpoints, those that a link names among them, and base models that are ready. */
function useChoices(linked: string[]) {
  const checkpoints = useQuery(queries.allCheckpoints);
  const models = useQuery(queries.models);
  const found = useQueries({ queries: linked.map((id) => checkpointQuery(id)) });
  const named = found.flatMap(({ data }) => data ?? []);
  const listed = checkpoints.data?.data ?? [];
  const all: Checkpoint[] = [...named.filter(({ id }) => listed.every((one) => one.id !== id)), ...listed];
  const ready = (models.data?.data ?? []).filter(({ state }) => state === "READY");
  const groups = [
    { group: "Checkpoints", items: checkpointOptions(all).map(({ value, label }) => ({ value: optionOf({ kind: "checkpoint", id: value }), label })) },
    { group: "Base models", items: ready.map((model) => ({ value: optionOf({ kind: "base_model", id: model.id }), label: model.ref || model.name })) },
  ];
  return {
    checkpoints: all,
    options: groups.filter(({ items }) => items.length > 0),
    isNaming: found.some(({ isLoading }) => isLoading),
    isPending: checkpoints.isPending || models.isPending,
    error: checkpoints.error ?? models.error,
    retry: () => { void checkpoints.refetch(); void models.refetch(); },
  };
}

/** The reward of the run that made the checkpoint. Null for runs without one. */
function rewardOf(run: RunDetail | undefined): RunSpecRewardSection | null {
  const reward = object(run?.spec.reward);
  return run?.kind === "rl" && reward !== null && (textAt(reward, "name") !== "" || textAt(reward, "function") !== "") ? (reward as RunSpecRewardSection) : null;
}
