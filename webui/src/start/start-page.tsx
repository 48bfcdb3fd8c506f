import { Button, Group, SegmentedControl, Switch, Text } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { IconCheck, IconDownload } from "@tabler/icons-react";
import { keepPreviousData, queryOptions, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";

import { post } from "../api/http.ts";
import { Problem, type FieldProblem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import type { Preset, RunDetail } from "../api/schema.d.ts";
import type { Json } from "../common/json.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { candidates, openPreset, takenOver } from "./first-spec.ts";
import { SpecEditor } from "./spec-editor.tsx";
import { SpecForm } from "./spec-form.tsx";
import { asJson, asYaml, isJson, parseSpec, withValue } from "./spec-text.ts";
import classes from "./start-page.module.css";

type View = "form" | "yaml" | "json";

/** A key that makes a repeated submit of the same form the same run. */
function idempotencyKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Where the first spec comes from: another run, a preset of the address, or one that can be submitted here. */
export function StartPage() {
  const [search] = useSearchParams();
  const from = search.get("from");
  const asked = search.get("preset");
  const presets = useQuery({ ...queries.presets, select: (found) => ({ usable: found.filter((preset) => preset.fault === ""), broken: found.filter((preset) => preset.fault !== "") }) });
  const usable = presets.data?.usable;
  const model = useQuery({ ...queries.run(from ?? ""), enabled: from !== null });
  const named = usable?.find((preset) => preset.name === asked);
  const first = useQuery({ ...firstToSubmit(usable ?? []), enabled: usable !== undefined && from === null && named === undefined });
  const error = presets.error ?? model.error ?? first.error;
  if (error !== null) return <ProblemNotice error={error} retry={() => { void presets.refetch(); void first.refetch(); }} />;
  if (usable === undefined || (from !== null ? model.data === undefined : named === undefined && first.data === undefined)) return <Waiting label="Loading presets" />;
  const begun = from === null ? (named ?? first.data) : undefined;
  const spec: Record<string, unknown> = model.data?.spec ?? begun?.spec ?? { name: "" };
  return <StartForm presets={usable} broken={presets.data?.broken ?? []} first={adapted(spec, search, model.data)} firstPreset={begun?.name ?? ""} />;
}

/** The first preset that the server would take with what the project has; else one that leaves data and weights open. */
function firstToSubmit(presets: Preset[]) {
  return queryOptions({
    queryKey: ["first-to-submit", presets.map((preset) => preset.name)],
    queryFn: async ({ client }): Promise<{ name: string; spec: Json } | null> => {
      const [datasets, models, checkpoints] = await Promise.all([client.fetchQuery(queries.datasets), client.fetchQuery(queries.models), client.fetchQuery(queries.allCheckpoints)]);
      const stock = {
        datasets: datasets.data.filter((dataset) => dataset.latest !== null).map((dataset) => dataset.name),
        models: models.data.filter((entry) => entry.state === "READY").map((entry) => entry.name),
        checkpoints: checkpoints.data.filter((entry) => entry.state === "STORED").map((entry) => entry.id),
      };
      for (const { preset, spec } of candidates(presets, stock)) {
        const { valid } = await post("/api/v1/runs/validate", { body: { spec } });
        if (valid) return { name: preset.name, spec };
      }
      return openPreset(presets) ?? null;
    },
    gcTime: 0, // asked anew at each visit: what is there changes
    staleTime: Infinity,
    retry: false,
  });
}

const WAYS: Record<string, { what: string; to: string; way: string }> = {
  unknown_dataset: { what: "dataset", to: "/datasets/new", way: "upload a dataset" },
  unknown_model: { what: "base model", to: "/models", way: "register a base model" },
};

/** What must be brought here first, with the way there; the fields below offer what is there. */
function Missing({ errors }: { errors: FieldProblem[] }) {
  const ways = Object.entries(WAYS).filter(([code]) => errors.some((error) => error.code === code));
  if (ways.length === 0) return null;
  return (
    <div className={classes.missing} role="note" data-testid="missing">
      {ways.map(([code, { what, to, way }]) => (
        <p key={code}>This run still needs a {what} that is in this project: choose one below, or <Link to={to}>{way}</Link>.</p>
      ))}
    </div>
  );
}

function adapted(spec: Record<string, unknown>, search: URLSearchParams, model: RunDetail | undefined): string {
  let text = asYaml(spec);
  if (model !== undefined) text = withValue(text, ["name"], `${model.name}-again`);
  const [dataset, base, checkpoint] = [search.get("dataset"), search.get("model"), search.get("checkpoint")];
  if (dataset !== null) text = withValue(text, ["dataset", "version"], dataset);
  if (base !== null) text = withValue(withValue(text, ["model", "checkpoint"], undefined), ["model", "base_model"], base);
  if (checkpoint !== null) text = withValue(withValue(text, ["model", "base_model"], undefined), ["model", "checkpoint"], checkpoint);
  return text;
}

function StartForm({ presets, broken, first, firstPreset }: { presets: Preset[]; broken: Preset[]; first: string; firstPreset: string }) {
  const [text, setText] = useState(first);
  const [preset, setPreset] = useState(firstPreset);
  const [view, setView] = useState<View>("form");
  const [showAll, setShowAll] = useState(false);
  const [key, setKey] = useState(idempotencyKey);
  const navigate = useNavigate();
  const client = useQueryClient();
  const parsed = useMemo(() => parseSpec(text), [text]);
  const spec = "spec" in parsed ? parsed.spec : null;

  const [settled] = useDebouncedValue(spec, 350);
  const check = useQuery({
    queryKey: ["validate", settled],
    queryFn: () => post("/api/v1/runs/validate", { body: { spec: settled ?? {} } }),
    enabled: settled !== null,
    placeholderData: keepPreviousData,
    retry: false,
    staleTime: 10_000,
  });
  const start = useMutation({
    mutationFn: () => post("/api/v1/runs", { body: { spec: spec ?? {} }, headers: { "Idempotency-Key": key } }),
    onSuccess: (run) => {
      client.setQueryData(queries.run(run.id).queryKey, run);
      void client.invalidateQueries({ queryKey: ["runs"] });
      void navigate(`/runs/${run.id}`);
    },
    onError: () => setKey(idempotencyKey()),
  });
  const refused = start.error instanceof Problem ? start.error.errors : [];
  const errors: FieldProblem[] = check.data?.errors ?? refused;

  const show = (next: View) => {
    if (spec !== null && next === "json" && !isJson(text)) setText(asJson(spec));
    if (spec !== null && next !== "json" && isJson(text)) setText(asYaml(spec));
    setView(next);
  };
  const choose = (chosen: Preset) => {
    setPreset(chosen.name);
    const next = spec === null ? chosen.spec : takenOver(chosen.spec, spec);
    setText(view === "json" ? asJson(next) : asYaml(next));
    start.reset();
  };
  return (
    <>
      <PageHeader title="Start a run">Begin with a preset; every key of the spec can be changed in the form or in its text.</PageHeader>
      {broken.length > 0 && (
        <div className={classes.missing} role="note" data-testid="broken-presets">
          {broken.map((entry) => <p key={entry.name}>The preset <b>{entry.name}</b> cannot be used: {entry.fault}</p>)}
        </div>
      )}
      <div className={classes.presets} role="radiogroup" aria-label="Preset">
        {presets.map((entry) => (
          <button key={entry.name} type="button" role="radio" aria-checked={entry.name === preset} className={classes.preset} onClick={() => choose(entry)} data-preset={entry.name}>
            <strong>{entry.title}</strong>
            <span>{entry.description}</span>
          </button>
        ))}
      </div>
      <div className={classes.bar}>
        <SegmentedControl value={view} onChange={(value) => show(value as View)} data={[{ value: "form", label: "Form" }, { value: "yaml", label: "YAML" }, { value: "json", label: "JSON" }]} />
        {view === "form" && <Switch label="All fields" checked={showAll} onChange={(event) => setShowAll(event.currentTarget.checked)} />}
        <span className={classes.verdict} data-valid={check.data?.valid ?? "unknown"} role="status" data-testid="verdict">
          {spec === null ? "The text cannot be read" : check.data === undefined ? "Checking" : check.data.valid ? <><IconCheck size={14} /> Valid</> : `${errors.length} thing${errors.length === 1 ? "" : "s"} to mend`}
        </span>
        <Group gap={8} ml="auto">
          <Button variant="default" component="a" download="run.yaml" leftSection={<IconDownload size={14} />} href={`data:application/yaml;charset=utf-8,${encodeURIComponent(spec === null ? text : asYaml(spec))}`}>run.yaml</Button>
          <Button disabled={spec === null} loading={start.isPending} onClick={() => start.mutate()} data-testid="start">Start the run</Button>
        </Group>
      </div>
      <Missing errors={errors} />
      <ProblemNotice error={check.error} />
      <ProblemNotice error={start.error} />
      {view === "form" ? (
        spec === null
          ? <Panel><Text size="sm">The text has a fault{"line" in parsed ? ` in line ${parsed.line}: ${parsed.fault}` : ""}. Mend it there; the form follows.</Text></Panel>
          : <SpecForm spec={spec} errors={errors} showAll={showAll} onChange={(path, value) => setText((old) => withValue(old, path, value))} />
      ) : (
        <SpecEditor text={text} errors={errors} fault={"fault" in parsed ? parsed : null} onChange={setText} />
      )}
    </>
  );
}
