import "@mantine/core/styles/NumberInput.css";
import { Button, Checkbox, FileButton, Group, NumberInput, SegmentedControl, Select, Textarea } from "@mantine/core";
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";

import { post } from "../api/http.ts";
import { Problem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import type { RunDetail } from "../api/schema.d.ts";
import { grouped } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { PROBE_NAMES, PROBES, type ProbeName } from "./report.ts";
import classes from "./reward-tests.module.css";
import { BUILT_IN, completeNote, DEFAULT_ROWS, planText, testRequest, type Completions, type Fields } from "./test-form.ts";

/** The form of a reward test. `?from=` takes the settings of an earlier test's run. */
export function NewTestPage() {
  const [search] = useSearchParams();
  const from = search.get("from");
  const earlier = useQuery({ ...queries.run(from ?? ""), enabled: from !== null });
  if (from !== null && earlier.isPending) return <Waiting label="Loading the settings of the test" />;
  return <Form initial={initialFields(search, earlier.data)} />;
}

function initialFields(search: URLSearchParams, run: RunDetail | undefined): Fields {
  const { checkpoint, base_model } = run?.spec.model ?? {};
  const earlier = run?.spec.reward_test;
  const options = run?.spec.reward.options ?? {};
  return {
    reward: search.get("reward") ?? "", dataset: search.get("dataset") ?? "", split: run?.spec.dataset.split ?? "train",
    options: Object.keys(options).length === 0 ? "" : JSON.stringify(options),
    weights: checkpoint ? `checkpoint:${checkpoint}` : base_model ? `model:${base_model}` : "",
    rows: earlier?.rows ?? DEFAULT_ROWS, completions: earlier !== undefined && earlier !== null && earlier.samples === 0 ? "probes" : "sample",
    samples: earlier?.samples || 2, maxNewTokens: earlier?.max_new_tokens ?? 512, stored: "", probes: earlier?.probes ?? PROBE_NAMES, successScore: earlier?.success_score ?? "",
  };
}

function Form({ initial }: { initial: Fields }) {
  const [fields, setFields] = useState(initial);
  const [isTried, setTried] = useState(false);
  const set = (changed: Partial<Fields>) => setFields((old) => ({ ...old, ...changed }));
  const navigate = useNavigate();
  const client = useQueryClient();
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const rewards = useInfiniteQuery(queries.functions("reward"));
  const datasets = useQuery(queries.datasets);
  const models = useQuery(queries.models);
  const checkpoints = useQuery(queries.allCheckpoints);

  const functions = rewards.data?.pages.flatMap((page) => page.data) ?? [];
  const own = functions.flatMap((entry) => entry.versions.map(({ ref }) => ref));
  const versions = datasets.data?.data.flatMap((dataset) => dataset.versions) ?? [];
  const version = versions.find(({ ref }) => ref === fields.dataset);
  const splits = Object.entries(version?.splits ?? {});
  const rowsInSplit = version === undefined ? null : (version.splits[fields.split] ?? 0);
  const options = functions.flatMap((entry) => entry.versions).find(({ ref }) => ref === fields.reward)?.options ?? [];
  const weights = [
    { group: "Checkpoints", items: (checkpoints.data?.data ?? []).filter(({ state }) => state === "STORED").map(({ id, run, step, aliases }) => ({ value: `checkpoint:${id}`, label: `${aliases.length > 0 ? `${aliases.join(", ")}: ` : ""}${run.name}, step ${step}` })) },
    { group: "Base models", items: (models.data?.data ?? []).filter(({ state }) => state === "READY").map(({ ref }) => ({ value: `model:${ref}`, label: ref })) },
  ];
  const known = new Set(weights.flatMap(({ items }) => items.map(({ value }) => value)));
  const isKnown = known.has(fields.weights);

  const request = testRequest(fields);
  const problems = isTried && "problems" in request ? request.problems : {};
  const start = useMutation({
    mutationFn: async () => {
      if ("problems" in request) return null;
      return post("/api/v1/reward-tests", { body: request.body });
    },
    onSuccess: (test) => {
      if (test === null) return;
      void client.invalidateQueries({ queryKey: ["reward-tests"] });
      void navigate(`/functions/tests/${test.id}`);
    },
  });
  const refused = start.error instanceof Problem ? start.error.errors : [];
  const said = (pointer: string) => refused.filter((error) => error.pointer.startsWith(pointer)).map((error) => error.message).join(" ") || undefined;
  const loadError = rewards.error ?? datasets.error ?? models.error ?? checkpoints.error;
  const incomplete = completeNote(fields, rowsInSplit);
  return (
    <>
      <PageHeader title="Test a reward">Score completions and reward-hacking probes before a run learns from the reward. <a href="/docs/how-to/reward#test-a-reward-before-a-run-uses-it" target="_blank" rel="noreferrer">How tests work</a></PageHeader>
      <ProblemNotice error={loadError} retry={() => { void rewards.refetch(); void datasets.refetch(); void models.refetch(); void checkpoints.refetch(); }} />
      <ProblemNotice error={start.error} hidePointers={["/dataset", "/split", "/reward/options"]} />
      {readOnly !== null && <p role="note">{readOnly}</p>}
      <form noValidate className={classes.page} onSubmit={(event) => { event.preventDefault(); setTried(true); if (!("problems" in request)) start.mutate(); }}>
        <Panel title="Reward and rows">
          <div className={classes.fields}>
            <Select
              label="Reward" description="a version of yours, or a built-in one" required searchable nothingFoundMessage="No reward has this name" error={problems.reward}
              data={[{ group: "Your rewards", items: own }, { group: "Built in", items: BUILT_IN }]} value={fields.reward || null} onChange={(value) => set({ reward: value ?? "", options: "" })} data-testid="test-reward"
            />
            <Select
              label="Dataset version" description="its first rows are used" required searchable nothingFoundMessage="No dataset version has this name" error={problems.dataset ?? said("/dataset")}
              data={versions.map(({ ref }) => ref)} value={fields.dataset || null}
              onChange={(value) => {
                const chosen = versions.find(({ ref }) => ref === value);
                set({ dataset: value ?? "", split: chosen === undefined || fields.split in chosen.splits ? fields.split : (Object.keys(chosen.splits)[0] ?? "train") });
              }} data-testid="test-dataset"
            />
            <Select label="Split" description="of the dataset version" allowDeselect={false} error={said("/split")} data={splits.length > 0 ? splits.map(([name, rows]) => ({ value: name, label: `${name} (${grouped(rows)} rows)` })) : [fields.split]} value={fields.split} onChange={(value) => set({ split: value ?? "train" })} />
            <NumberInput label="Rows" description={rowsInSplit === null ? "from the first on" : `of ${grouped(rowsInSplit)}, from the first on`} min={1} max={1000} allowDecimal={false} error={problems.rows} value={fields.rows} onChange={(rows) => set({ rows })} />
            <Textarea
              className={classes.wide} label="Options" description={options.length > 0 ? `JSON, of ${options.join(", ")}; empty for the defaults` : "JSON; empty for the defaults"} placeholder={options.length > 0 ? `{"${options[0]}": …}` : "{}"} autosize minRows={1} maxRows={8} classNames={{ input: "mono" }}
              error={problems.options ?? said("/reward/options")} value={fields.options} onChange={(event) => set({ options: event.currentTarget.value })}
            />
          </div>
        </Panel>
        <Panel title="Completions">
          <div className={classes.fields}>
            <div className={classes.wide}>
              <SegmentedControl aria-label="Completions" value={fields.completions} onChange={(value) => set({ completions: value as Completions })} data={[{ value: "sample", label: "Sample from a model" }, { value: "stored", label: "Your own completions" }, { value: "probes", label: "Probes only" }]} />
            </div>
            <Select
              label={fields.completions === "sample" ? "Checkpoint or base model" : "Model for the prompts"} required searchable nothingFoundMessage="No model has this name" error={problems.weights ?? said("/model") ?? said("/checkpoint")}
              description={fields.completions === "sample" ? "the one that the run will start from; an untrained model solves nothing" : "its chat template renders the prompts that the probes copy"}
              data={isKnown || fields.weights === "" ? weights : [{ group: "Of the earlier test", items: [{ value: fields.weights, label: fields.weights.replace(/^\w+:/, "") }] }, ...weights]} value={fields.weights || null} onChange={(value) => set({ weights: value ?? "" })} data-testid="test-weights"
            />
            {fields.completions === "sample" && (
              <>
                <NumberInput label="Samples per row" description="2 or more show zero-variance groups" min={1} max={64} allowDecimal={false} error={problems.samples} value={fields.samples} onChange={(samples) => set({ samples })} />
                <NumberInput label="Tokens per sample" description="at most; a longer sample is cut off" min={1} allowDecimal={false} value={fields.maxNewTokens} onChange={(maxNewTokens) => set({ maxNewTokens })} />
              </>
            )}
            {fields.completions === "stored" && (
              <div className={classes.wide}>
                <Textarea label="Completions as JSON lines" description='{"row": 0, "completion": "…"}, or with its own "prompt" and "answer", and "group" for completions of one prompt' autosize minRows={4} maxRows={14} classNames={{ input: "mono" }} error={problems.stored ?? said("/stored")} value={fields.stored} onChange={(event) => set({ stored: event.currentTarget.value })} data-testid="stored" />
                <Group mt={8}><FileButton accept=".jsonl,.ndjson,.json" onChange={(file) => { void file?.text().then((stored) => set({ stored })); }}>{(props) => <Button {...props} variant="default">Load a file</Button>}</FileButton></Group>
              </div>
            )}
          </div>
        </Panel>
        <Panel title="Reward-hacking probes" aside="completions that deserve no reward, tried on every row">
          <Checkbox.Group aria-label="Probes" value={fields.probes} onChange={(probes) => set({ probes: probes as ProbeName[] })}>
            <div className={classes.probes}>{PROBE_NAMES.map((name) => <Checkbox key={name} size="xs" value={name} label={PROBES[name].label} description={PROBES[name].tries} />)}</div>
          </Checkbox.Group>
          <NumberInput mt={12} w={220} label="Success score" description="a completion counts as right with this score or more" placeholder="1" value={fields.successScore} onChange={(successScore) => set({ successScore })} />
        </Panel>
        <Group justify="space-between" align="center" gap={12}>
          <div className={classes.note} style={{ flex: 1 }} data-testid="test-plan">{planText(fields, rowsInSplit)}{incomplete !== "" && <div>{incomplete}</div>}</div>
          <Button component={Link} to="/functions?show=tests" variant="default">Cancel</Button>
          <Button type="submit" disabled={readOnly !== null} loading={start.isPending} data-testid="start-test">Start test</Button>
        </Group>
      </form>
    </>
  );
}
