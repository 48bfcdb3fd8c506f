import "@mantine/core/styles/Switch.css";
import { Anchor, Button, Group, SegmentedControl, Switch, Text } from "@mantine/core";
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
import { applyPreset, candidates, fallbackPreset, needsCheckpoint } from "./default-spec.ts";
import { PresetPicker } from "./preset-picker.tsx";
import { SpecEditor } from "./spec-editor.tsx";
import { SpecForm } from "./spec-form.tsx";
import { asJson, asYaml, isJson, parseSpec, withValue } from "./spec-text.ts";
import classes from "./start-page.module.css";

type View = "form" | "yaml" | "json";

/** A key with which a repeated submit of the same form returns the same run. */
function idempotencyKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The form starts with the spec of another run, a preset from the URL, or a preset that can be submitted. */
export function StartPage() {
  const [search] = useSearchParams();
  const from = search.get("from");
  const presetName = search.get("preset");
  const presets = useQuery({ ...queries.presets, select: (found) => ({ usable: found.filter((preset) => preset.fault === ""), broken: found.filter((preset) => preset.fault !== "") }) });
  const usable = presets.data?.usable;
  const source = useQuery({ ...queries.run(from ?? ""), enabled: from !== null });
  const requested = usable?.find((preset) => preset.name === presetName);
  const submittable = useQuery({ ...submittablePreset(usable ?? []), enabled: usable !== undefined && from === null && requested === undefined });
  const error = presets.error ?? source.error ?? submittable.error;
  if (error !== null) return <ProblemNotice error={error} retry={() => { void presets.refetch(); void submittable.refetch(); }} />;
  if (usable === undefined || (from !== null ? source.data === undefined : requested === undefined && submittable.data === undefined)) return <Waiting label="Loading presets" />;
  const preset = from === null ? (requested ?? submittable.data) : undefined;
  const spec: Record<string, unknown> = source.data?.spec ?? preset?.spec ?? { name: "" };
  return <StartForm presets={usable} broken={presets.data?.broken ?? []} initialText={initialText(spec, search, source.data)} initialPreset={preset?.name ?? ""} />;
}

/** The first preset that the server accepts with the objects of the project once the user has chosen a checkpoint, or else one without a dataset and a model. */
function submittablePreset(presets: Preset[]) {
  return queryOptions({
    queryKey: ["submittable-preset", presets.map((preset) => preset.name)],
    queryFn: async ({ client }): Promise<{ name: string; spec: Json } | null> => {
      const [datasets, models, checkpoints] = await Promise.all([client.fetchQuery(queries.datasets), client.fetchQuery(queries.models), client.fetchQuery(queries.allCheckpoints)]);
      const available = {
        datasets: datasets.data.filter((dataset) => dataset.latest !== null).map((dataset) => dataset.name),
        models: models.data.filter((entry) => entry.state === "READY").map((entry) => entry.name),
        hasCheckpoint: checkpoints.data.some((entry) => entry.state === "STORED"),
      };
      for (const { preset, spec } of candidates(presets, available)) {
        if (needsCheckpoint(spec)) return { name: preset.name, spec }; // the form asks for it
        const { valid } = await post("/api/v1/runs/validate", { body: { spec } });
        if (valid) return { name: preset.name, spec };
      }
      return fallbackPreset(presets) ?? null;
    },
    gcTime: 0, // fetched again on each visit, because the objects of the project change
    staleTime: Infinity,
    retry: false,
  });
}

const MISSING_OBJECTS: Record<string, { object: string; to: string; action: string }> = {
  unknown_dataset: { object: "dataset", to: "/datasets/new", action: "upload a dataset" },
  unknown_model: { object: "base model", to: "/models", action: "register a base model" },
};

/** The objects that the project lacks for this run, with links to add them. */
function Missing({ errors, asksForCheckpoint }: { errors: FieldProblem[]; asksForCheckpoint: boolean }) {
  const missing = Object.entries(MISSING_OBJECTS).filter(([code]) => errors.some((error) => error.code === code));
  if (missing.length === 0 && !asksForCheckpoint) return null;
  return (
    <div className={classes.missing} role="note" data-testid="missing">
      {asksForCheckpoint && <p>This run begins with the weights of a checkpoint: <Anchor component="button" size="sm" onClick={() => document.querySelector<HTMLElement>("[data-field='/model/checkpoint']")?.focus()}>choose one</Anchor>.</p>}
      {missing.map(([code, { object, to, action }]) => (
        <p key={code}>This run needs a {object} in this project. Select one below, or <Link to={to}>{action}</Link>.</p>
      ))}
    </div>
  );
}

function initialText(spec: Record<string, unknown>, search: URLSearchParams, sourceRun: RunDetail | undefined): string {
  let text = asYaml(spec);
  if (sourceRun !== undefined) text = withValue(text, ["name"], `${sourceRun.name}-again`);
  const [dataset, base, checkpoint] = [search.get("dataset"), search.get("model"), search.get("checkpoint")];
  if (dataset !== null) text = withValue(text, ["dataset", "version"], dataset);
  if (base !== null) text = withValue(withValue(text, ["model", "checkpoint"], undefined), ["model", "base_model"], base);
  if (checkpoint !== null) text = withValue(withValue(text, ["model", "base_model"], undefined), ["model", "checkpoint"], checkpoint);
  return text;
}

function StartForm({ presets, broken, initialText, initialPreset }: { presets: Preset[]; broken: Preset[]; initialText: string; initialPreset: string }) {
  const [text, setText] = useState(initialText);
  const [preset, setPreset] = useState(initialPreset);
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
  const submitErrors = start.error instanceof Problem ? start.error.errors : [];
  const errors: FieldProblem[] = check.data?.errors ?? submitErrors;

  const show = (next: View) => {
    if (spec !== null && next === "json" && !isJson(text)) setText(asJson(spec));
    if (spec !== null && next !== "json" && isJson(text)) setText(asYaml(spec));
    setView(next);
  };
  const choose = (chosen: Preset) => {
    setPreset(chosen.name);
    const next = spec === null ? chosen.spec : applyPreset(chosen.spec, spec);
    setText(view === "json" ? asJson(next) : asYaml(next));
    start.reset();
  };
  return (
    <>
      <PageHeader title="Start a run">Choose a preset, then edit its spec in the form or as text.</PageHeader>
      {broken.length > 0 && (
        <div className={classes.missing} role="note" data-testid="broken-presets">
          {broken.map((entry) => <p key={entry.name}>Preset <b>{entry.name}</b> is invalid: {entry.fault}</p>)}
        </div>
      )}
      <PresetPicker presets={presets} chosen={preset} onChoose={choose} />
      <div className={classes.bar}>
        <SegmentedControl value={view} onChange={(value) => show(value as View)} data={[{ value: "form", label: "Form" }, { value: "yaml", label: "YAML" }, { value: "json", label: "JSON" }]} />
        {view === "form" && <Switch label="All fields" checked={showAll} onChange={(event) => setShowAll(event.currentTarget.checked)} />}
        <span className={classes.validation} data-valid={check.data?.valid ?? "unknown"} role="status" data-testid="validation">
          {spec === null ? "Syntax error" : check.data === undefined ? "Validating" : check.data.valid ? <><IconCheck size={14} /> Valid</> : `${errors.length} error${errors.length === 1 ? "" : "s"} to fix`}
        </span>
        <Group gap={8} ml="auto">
          <Button variant="default" component="a" download="run.yaml" leftSection={<IconDownload size={14} />} href={`data:application/yaml;charset=utf-8,${encodeURIComponent(spec === null ? text : asYaml(spec))}`}>run.yaml</Button>
          <Button disabled={spec === null} loading={start.isPending} onClick={() => start.mutate()} data-testid="start">Start run</Button>
        </Group>
      </div>
      <Missing errors={errors} asksForCheckpoint={view === "form" && spec !== null && needsCheckpoint(spec)} />
      <ProblemNotice error={check.error} />
      <ProblemNotice error={start.error} />
      {view === "form" ? (
        spec === null
          ? <Panel><Text size="sm">The text has a syntax error{"syntaxError" in parsed ? ` on line ${parsed.syntaxError.line}: ${parsed.syntaxError.message}` : ""}. Fix it in the YAML or JSON view to use the form.</Text></Panel>
          : <SpecForm spec={spec} errors={errors} showAll={showAll} onChange={(path, value) => setText((old) => withValue(old, path, value))} />
      ) : (
        <SpecEditor text={text} errors={errors} syntaxError={"syntaxError" in parsed ? parsed.syntaxError : null} onChange={setText} />
      )}
    </>
  );
}
