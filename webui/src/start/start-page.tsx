import { queryOptions, useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { Link, useSearchParams } from "react-router";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Preset, RunDetail } from "../api/schema.d.ts";
import { textAt, type Json } from "../common/json.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader } from "../common/panel.tsx";
import { withFunctions } from "../functions/use-function.ts";
import { defaultPreset, originOf, originOfSpec, ORIGINS, presetsOf, specFor, type Available, type Origin } from "./origins.ts";
import { withKey } from "./spec-state.ts";
import { inOrder, withoutDefaults } from "./spec-order.ts";
import { StartForm, type Start } from "./start-form.tsx";
import classes from "./start-page.module.css";

const FromTemplate = lazy(() => import("./from-template.tsx"));

/** The page begins with a draft, with the spec of another run, or with a preset for the data, the demo or a checkpoint. */
export function StartPage() {
  const [search] = useSearchParams();
  const template = search.get("template");
  const draftId = search.get("draft");
  const sourceId = draftId ?? search.get("from");
  const presets = useQuery(queries.presets);
  const [datasets, models, checkpoints] = [useQuery(queries.datasets), useQuery(queries.models), useQuery(queries.allCheckpoints)];
  const source = useQuery({ ...queries.run(sourceId ?? ""), enabled: sourceId !== null });
  const objects = [presets, datasets, models, checkpoints];
  const error = objects.map((query) => query.error).find((found) => found !== null) ?? source.error;
  if (error != null) return <ProblemNotice error={error} retry={() => [...objects, source].forEach((query) => { if (query.error !== null) void query.refetch(); })} />;
  if (presets.data === undefined || datasets.data === undefined || models.data === undefined || checkpoints.data === undefined) return <Waiting label="Loading presets" />;
  if (sourceId !== null && source.data === undefined) return <Waiting label="Loading the run" />;
  const available: Available = {
    datasets: datasets.data.data.filter((dataset) => dataset.latest !== null).map((dataset) => dataset.name),
    models: models.data.data.filter((entry) => entry.state === "READY").map((entry) => entry.name),
    hasCheckpoint: checkpoints.data.data.some((entry) => entry.state === "STORED"),
  };
  const usable = presets.data.filter((preset) => preset.fault === "");
  const broken = presets.data.filter((preset) => preset.fault !== "");
  const isDraft = draftId !== null && source.data?.status === "DRAFT";
  const from = isDraft ? null : (source.data ?? null);
  return (
    <>
      <Header draft={isDraft ? source.data! : null} from={from} />
      {broken.length > 0 && (
        <div className={classes.notice} role="note" data-testid="broken-presets">
          {broken.map((entry) => <p key={entry.name}>Preset <b>{entry.name}</b> is invalid: {entry.fault}</p>)}
        </div>
      )}
      {source.data !== undefined
        ? <StartForm key={source.data.id} presets={usable} available={available} initial={startFrom(source.data, isDraft, usable, search)} source={from} draft={isDraft ? source.data : null} />
        : template === null ? <FromPreset presets={usable} available={available} search={search} /> : (
          <Suspense fallback={<Waiting />}>
            <FromTemplate key={template} reference={template}>{(fill) => <FromPreset presets={usable} available={available} search={search} fill={fill} />}</FromTemplate>
          </Suspense>
        )}
    </>
  );
}

function Header({ draft, from }: { draft: RunDetail | null; from: RunDetail | null }) {
  if (draft !== null) return <PageHeader title="Edit a draft">It is stored and has not started. <Link className={classes.inline} to="/runs/new">Start from scratch</Link></PageHeader>;
  if (from !== null) return (
    <PageHeader title="Start another like it">
      {from.submitted_spec === null ? "With the settings, without defaults, of" : "With the spec, as it was submitted, of"} <Link className={classes.inline} to={`/runs/${from.id}`}>{from.name}</Link>.
      {from.status === "DRAFT" ? <> It is a draft: <Link className={classes.inline} to={`/runs/new?draft=${from.id}`}>edit it</Link>.</> : <> The new run shows it as its parent.</>} <Link className={classes.inline} to="/runs/new">Start from scratch</Link>
    </PageHeader>
  );
  return <PageHeader title="Start a run">Choose what it begins with, then an algorithm. Every setting has a default.</PageHeader>;
}

/** The spec as it was submitted, with what the address of the page replaces. */
function startFrom(run: RunDetail, isDraft: boolean, presets: Preset[], search: URLSearchParams): Start {
  const submitted = run.submitted_spec === null ? withoutDefaults(run.spec) : inOrder(run.submitted_spec);
  const spec = withParams(isDraft ? submitted : withKey(submitted, ["name"], `${run.name}-again`), search);
  return { origin: originOfSpec(presets, spec), preset: "", spec };
}

type FromPresetProps = { presets: Preset[]; available: Available; search: URLSearchParams; fill?: (spec: Json) => Json };

function FromPreset({ presets, available, search, fill = (spec) => spec }: FromPresetProps) {
  const wanted = presets.find(({ name }) => name === search.get("preset"));
  const origin = originIn(search, wanted, presets, available);
  const found = useQuery({ ...presetToStart(origin, presets, available), enabled: wanted === undefined });
  if (found.error !== null) return <ProblemNotice error={found.error} retry={() => void found.refetch()} />;
  if (wanted === undefined && found.data === undefined) return <Waiting label="Choosing a preset" />;
  const preset = wanted ?? found.data ?? undefined;
  const spec = withParams(fill(preset === undefined ? { name: "" } : specFor(origin, preset, presets, available)), search);
  return <StartForm presets={presets} available={available} initial={{ origin, preset: preset?.name ?? "", spec }} source={null} draft={null} />;
}

function originIn(search: URLSearchParams, wanted: Preset | undefined, presets: Preset[], available: Available): Origin {
  const named = ORIGINS.find((origin) => origin === search.get("start"));
  if (named !== undefined) return named;
  if (search.has("checkpoint")) return "checkpoint";
  if (wanted !== undefined) return presetsOf("demo", presets).includes(wanted) ? "demo" : "data";
  return search.has("dataset") || search.has("model") ? "data" : originOf(presets, available);
}

/** The default preset, or the first that the server accepts with the objects of the project as they are. */
function presetToStart(origin: Origin, presets: Preset[], available: Available) {
  return queryOptions({
    queryKey: ["preset-to-start", origin, presets.map((preset) => preset.name), available],
    queryFn: async (): Promise<Preset | null> => {
      const standard = defaultPreset(origin, presets, available) ?? null;
      if (origin !== "data" || available.datasets.length === 0 || available.models.length === 0) return standard;
      for (const preset of presetsOf(origin, presets)) {
        const { valid } = await post("/api/v1/runs/validate", { body: { spec: specFor(origin, preset, presets, available) } });
        if (valid) return preset;
      }
      return standard;
    },
    gcTime: 0,
    staleTime: Infinity,
    retry: false,
  });
}

/** The dataset, the weights and the functions that the address of the page names. */
function withParams(spec: Json, search: URLSearchParams): Json {
  const [dataset, base, checkpoint] = [search.get("dataset"), search.get("model"), search.get("checkpoint")];
  let found = spec;
  if (dataset !== null) found = withKey(found, ["dataset", "version"], dataset);
  if (base !== null) found = withKey(withKey(found, ["model", "checkpoint"], undefined), ["model", "base_model"], base);
  if (checkpoint !== null) found = withKey(withKey(found, ["model", "base_model"], undefined), ["model", "checkpoint"], checkpoint);
  found = withFunctions(found, search);
  return textAt(found, "name") === "" && found["name"] === undefined ? { name: "", ...found } : found;
}
