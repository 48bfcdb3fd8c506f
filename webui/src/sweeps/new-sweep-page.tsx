import "@mantine/core/styles/NumberInput.css";
import { Autocomplete, Button, Checkbox, Group, NumberInput, SegmentedControl, Select, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { IconPlus, IconTrash } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { RunSpecPart, SweepPlan } from "../api/schema.d.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { CodeEditor } from "../functions/code-editor.tsx";
import { asYaml, lineOf, parseSpec } from "../start/spec-text.ts";
import { pointerOf, SPEC_FIELDS } from "../start/spec-schema.ts";
import { commonSpec } from "./common-spec.ts";
import { atPoint, costText, NEW_PARAMETER, planOf, type ParameterFields, type PlanFields } from "./sweep-form.ts";
import classes from "./sweeps.module.css";

const METRICS = ["reward/mean", "eval/greedy", "eval/accuracy", "loss/policy", "sft/loss", "sft/greedy_accuracy", "dpo/validation_accuracy", "dpo/validation_loss"];
const POINTERS = SPEC_FIELDS.map(({ path }) => pointerOf(path)).filter((pointer) => pointer !== "/name");
const EMPTY_PLAN: PlanFields = { method: "grid", parameters: [{ ...NEW_PARAMETER }], samples: 20, seed: 1, metric: "reward/mean", goal: "max", atStep: "", worseThan: "", target: "" };

type Initial = { name: string; spec: RunSpecPart; plan: PlanFields; parallel: number };

/** The form of a sweep, from a run (`?run=`), another sweep (`?sweep=`), a template or preset (`?template=`), or nothing. */
export function NewSweepPage() {
  const [search] = useSearchParams();
  const [runId, sweepId, template] = [search.get("run"), search.get("sweep"), search.get("template")];
  const run = useQuery({ ...queries.run(runId ?? ""), enabled: runId !== null });
  const sweep = useQuery({ ...queries.sweep(sweepId ?? ""), enabled: sweepId !== null });
  const templates = useQuery(queries.templates);
  const presets = useQuery(queries.presets);
  const error = run.error ?? sweep.error ?? templates.error ?? presets.error;
  if (error !== null) return <ProblemNotice error={error} retry={() => { void run.refetch(); void sweep.refetch(); void templates.refetch(); void presets.refetch(); }} />;
  const isLoading = templates.data === undefined || presets.data === undefined || (runId !== null && run.data === undefined) || (sweepId !== null && sweep.data === undefined);
  if (isLoading) return <Waiting label="Loading the spec" />;
  const sources = [
    { group: "Templates", items: templates.data.map(({ name }) => name) },
    { group: "Presets", items: presets.data.filter(({ fault, name }) => fault === "" && !templates.data.some((own) => own.name === name)).map(({ name }) => name) },
  ];
  const named = templates.data.find(({ name }) => name === template)?.spec ?? presets.data.find(({ name }) => name === template)?.spec;
  const initial: Initial = sweep.data !== undefined
    ? { name: `${sweep.data.name} again`, spec: sweep.data.spec, parallel: sweep.data.max_parallel, plan: fieldsOf(sweep.data.plan) }
    : { name: run.data?.name ?? "", spec: (run.data === undefined ? named : commonSpec(run.data)) ?? {}, parallel: 2, plan: EMPTY_PLAN };
  return <Form key={`${runId} ${sweepId} ${template}`} initial={initial} sources={sources} template={template} from={run.data?.name ?? sweep.data?.name ?? null} />;
}

function fieldsOf({ method, parameters, samples, seed, objective, stop }: SweepPlan): PlanFields {
  return {
    method, samples: samples ?? 20, seed, metric: objective.metric, goal: objective.goal, atStep: stop?.at_step ?? "", worseThan: stop?.worse_than ?? "", target: stop?.target ?? "",
    parameters: parameters.map(({ pointer, values, low, high, scale, integer }) => ({ pointer, by: values === null ? "range" : "values", values: (values ?? []).map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join(", "), low: low ?? "", high: high ?? "", scale, integer })),
  };
}

function Form({ initial, sources, template, from }: { initial: Initial; sources: { group: string; items: string[] }[]; template: string | null; from: string | null }) {
  const [, setSearch] = useSearchParams();
  const [name, setName] = useState(initial.name);
  const [text, setText] = useState(() => (Object.keys(initial.spec).length === 0 ? "" : asYaml(initial.spec)));
  const [plan, setPlan] = useState(initial.plan);
  const [parallel, setParallel] = useState<number | string>(initial.parallel);
  const [isTried, setTried] = useState(false);
  const set = (changed: Partial<PlanFields>) => setPlan((old) => ({ ...old, ...changed }));
  const navigate = useNavigate();
  const client = useQueryClient();
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);

  const parsed = parseSpec(text);
  const spec = "spec" in parsed ? parsed.spec : null;
  const planned = planOf(plan);
  const point = spec === null || "problems" in planned ? null : atPoint(spec, planned.first);
  const [settled] = useDebouncedValue(JSON.stringify(point), 400);
  const check = useQuery({
    queryKey: ["plan-of-sweep", settled],
    queryFn: () => post("/api/v1/runs/plan", { body: { spec: { ...JSON.parse(settled), name: name.slice(0, 80) || "sweep" } } }),
    enabled: settled !== "null", retry: false, staleTime: 10_000,
  });
  const create = useMutation({
    mutationFn: async () => {
      if (spec === null || "problems" in planned) return null;
      return post("/api/v1/sweeps", { body: { name, spec: spec as RunSpecPart, plan: planned.plan, max_parallel: Number(parallel) || 1 } });
    },
    onSuccess: (sweep) => {
      if (sweep === null) return;
      void client.invalidateQueries({ queryKey: ["sweeps"] });
      void navigate(`/sweeps/${sweep.id}`);
    },
  });
  const problems = isTried && "problems" in planned ? planned.problems : [];
  const said = (field: string, parameter: number | null = null) => problems.find((problem) => problem.parameter === parameter && problem.field === field)?.message;
  const specErrors = "syntaxError" in parsed
    ? (text.trim() === "" ? (isTried ? [{ line: null, message: "Write a spec, or choose a template, a preset or a run above." }] : []) : [parsed.syntaxError])
    : (check.data?.errors ?? []).map(({ pointer, message }) => ({ line: plan.parameters.some((one) => one.pointer === pointer) ? null : lineOf(text, pointer), message: `${pointer} ${message}` }));
  const slots = check.data?.plan?.slots_needed ?? null;
  const isReady = spec !== null && !("problems" in planned) && name.trim() !== "" && check.data?.valid === true;
  return (
    <>
      <PageHeader title="New sweep">{from === null ? "Choose what every trial has in common, then the fields that vary." : `From ${from}. `}<a href="/docs/how-to/sweep" target="_blank" rel="noreferrer"> How sweeps work</a></PageHeader>
      <ProblemNotice error={create.error} />
      {readOnly !== null && <p role="note">{readOnly}</p>}
      <form noValidate className={classes.page} onSubmit={(event) => { event.preventDefault(); setTried(true); if (isReady) create.mutate(); }}>
        <Panel title="1. Spec" aside="every trial has it; the sweep sets the name">
          <Group align="flex-start" gap={16} mb={12}>
            <TextInput label="Name" description="of the sweep; its runs begin with it" required maxLength={80} w={260} error={isTried && name.trim() === "" ? "Name the sweep." : undefined} value={name} onChange={(event) => setName(event.currentTarget.value)} data-testid="sweep-name" />
            <Select label="Begin with" description="a template or a preset; it replaces the text" searchable clearable w={260} data={sources} value={template} onChange={(value) => setSearch(value === null ? {} : { template: value })} />
          </Group>
          <CodeEditor source={text} errors={specErrors} label="Spec of the sweep as YAML" onChange={setText} />
        </Panel>
        <Panel title="2. Parameters" aside={<SegmentedControl aria-label="Method" value={plan.method} onChange={(method) => set({ method: method as PlanFields["method"] })} data={[{ value: "grid", label: "Grid: every combination" }, { value: "random", label: "Random points" }]} />}>
          {plan.parameters.map((parameter, index) => (
            <ParameterRow
              key={index} index={index} parameter={parameter} isRandom={plan.method === "random"} said={(field) => said(field, index)}
              onChange={(changed) => set({ parameters: plan.parameters.map((one, at) => (at === index ? { ...one, ...changed } : one)) })}
              onRemove={plan.parameters.length === 1 ? undefined : () => set({ parameters: plan.parameters.filter((_, at) => at !== index) })}
            />
          ))}
          {said("parameters") !== undefined && <p className={`${classes.note} ${classes.bad}`} role="alert">{said("parameters")}</p>}
          <Button mt={8} variant="default" leftSection={<IconPlus size={14} />} disabled={plan.parameters.length >= 20} onClick={() => set({ parameters: [...plan.parameters, { ...NEW_PARAMETER }] })}>Add a parameter</Button>
        </Panel>
        <Panel title="3. Trials and objective">
          <div className={classes.fields}>
            {plan.method === "random" && <NumberInput label="Trials" description="random points, at most 200" min={1} max={200} allowDecimal={false} error={said("samples")} value={plan.samples} onChange={(samples) => set({ samples })} />}
            {plan.method === "random" && <NumberInput label="Seed" description="the same seed gives the same points" min={0} allowDecimal={false} value={plan.seed} onChange={(seed) => set({ seed })} />}
            <NumberInput label="At the same time" description="runs that are active at once" min={1} max={50} allowDecimal={false} value={parallel} onChange={setParallel} />
            <Autocomplete size="xs" label="Objective" description="a metric of the run page; its newest value counts" required error={said("metric")} data={METRICS} value={plan.metric} onChange={(metric) => set({ metric })} />
            <Select label="Goal" description="which values are better" allowDeselect={false} data={[{ value: "max", label: "Higher is better" }, { value: "min", label: "Lower is better" }]} value={plan.goal} onChange={(goal) => set({ goal: goal as PlanFields["goal"] })} />
            <NumberInput label="Stop runs worse than" description="with a checkpoint; empty: none" error={said("worseThan")} value={plan.worseThan} onChange={(worseThan) => set({ worseThan })} />
            <NumberInput label="from train step" description="the rule begins there" min={1} allowDecimal={false} error={said("atStep")} value={plan.atStep} onChange={(atStep) => set({ atStep })} />
            <NumberInput label="Target" description="after it no more runs start; empty: none" value={plan.target} onChange={(target) => set({ target })} />
          </div>
        </Panel>
        <Group justify="space-between" align="center" gap={12}>
          <div className={classes.note} style={{ flex: 1 }} role="status" data-testid="sweep-cost">
            {"problems" in planned ? "Fill in the parameters to see how many trials and slots the sweep takes." : costText(planned.trials, Number(parallel) || 1, slots, check.data?.plan?.time.seconds ?? null)}
            {check.data?.valid === false && <span className={classes.bad}> The first point is not valid: fix the spec above.</span>}
          </div>
          <Button component={Link} to="/sweeps" variant="default">Cancel</Button>
          <Button type="submit" disabled={readOnly !== null || (isTried && !isReady)} loading={create.isPending} data-testid="start-sweep">Start {"problems" in planned ? "sweep" : `${planned.trials} trial${planned.trials === 1 ? "" : "s"}`}</Button>
        </Group>
      </form>
    </>
  );
}

type RowProps = { index: number; parameter: ParameterFields; isRandom: boolean; said: (field: string) => string | undefined; onChange: (changed: Partial<ParameterFields>) => void; onRemove: (() => void) | undefined };

/** One field of the spec that varies: listed values, or for random points a range. */
function ParameterRow({ index, parameter, isRandom, said, onChange, onRemove }: RowProps) {
  const field = SPEC_FIELDS.find(({ path }) => pointerOf(path) === parameter.pointer);
  const isRange = isRandom && parameter.by === "range";
  const hint = field === undefined ? "separated by commas" : field.choices.length > 0 ? `of ${field.choices.join(", ")}` : `separated by commas; default ${JSON.stringify(field.defaultValue)}`;
  return (
    <div className={classes.parameter} data-parameter={index}>
      <Select label={`Field ${index + 1}`} description={field?.description.slice(0, 120) ?? "of the spec"} searchable nothingFoundMessage="The spec has no such field" required limit={60} data={POINTERS} error={said("pointer")} value={parameter.pointer || null} onChange={(pointer) => onChange({ pointer: pointer ?? "" })} />
      <div>
        {isRandom && <SegmentedControl mb={8} aria-label={`Values or range of field ${index + 1}`} value={parameter.by} onChange={(by) => onChange({ by: by as ParameterFields["by"] })} data={[{ value: "values", label: "Values" }, { value: "range", label: "Range" }]} />}
        {!isRange ? <TextInput label="Values" description={hint} required error={said("values")} value={parameter.values} onChange={(event) => onChange({ values: event.currentTarget.value })} /> : (
          <div className={classes.range}>
            <TextInput label="Lowest" required error={said("low")} value={String(parameter.low)} onChange={(event) => onChange({ low: event.currentTarget.value })} />
            <TextInput label="Highest" required error={said("high")} value={String(parameter.high)} onChange={(event) => onChange({ high: event.currentTarget.value })} />
            <Select label="Scale" allowDeselect={false} data={[{ value: "log", label: "Logarithmic" }, { value: "linear", label: "Linear" }]} value={parameter.scale} onChange={(scale) => onChange({ scale: scale as ParameterFields["scale"] })} />
            <Checkbox mt={26} size="xs" label="Whole numbers" checked={parameter.integer} onChange={(event) => onChange({ integer: event.currentTarget.checked })} />
          </div>
        )}
      </div>
      {onRemove !== undefined && <Button className={classes.remove} variant="subtle" color="gray" leftSection={<IconTrash size={14} />} onClick={onRemove} aria-label={`Remove field ${index + 1}`}>Remove</Button>}
    </div>
  );
}
