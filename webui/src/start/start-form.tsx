import { Anchor, Button, TextInput } from "@mantine/core";
import { IconCopy, IconDeviceFloppy, IconDownload, IconTemplate } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useCallback, useEffect, useState } from "react";
import { useSearchParams } from "react-router";

import { Problem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import type { Preset, RunDetail } from "../api/schema.d.ts";
import type { Json } from "../common/json.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { count, titleOf } from "./faults.ts";
import { OriginCards } from "./origin-cards.tsx";
import { needsCheckpoint, ORIGINS, presetsOf, specFor, defaultPreset, lacksSample, type Available, type Origin } from "./origins.ts";
import { PresetSelect } from "./preset-select.tsx";
import { Errors, PlanFacts, StartPanel, Warnings } from "./rail.tsx";
import { SpecForm } from "./spec-form.tsx";
import { stateOf, withKey } from "./spec-state.ts";
import classes from "./start-page.module.css";
import { useCheck } from "./use-check.ts";
import { useStart } from "./use-start.ts";

const TextView = lazy(() => import("./text-view.tsx"));
const SimulationPanel = lazy(() => import("./simulation-panel.tsx").then(({ SimulationPanel }) => ({ default: SimulationPanel })));
const SampleNotice = lazy(() => import("./sample-notice.tsx"));
const CopyAs = lazy(() => import("./copy-as.tsx"));
const TemplatesDialog = lazy(() => import("./templates-dialog.tsx"));

export type Start = { origin: Origin; preset: string; spec: Json };

type Props = { presets: Preset[]; available: Available; initial: Start; source: RunDetail | null; draft: RunDetail | null };

/** The form, its text and the rail beside it. All three show one spec. */
export function StartForm({ presets, available, initial, source, draft }: Props) {
  const [search, setSearch] = useSearchParams();
  const view = search.get("view") === "yaml" ? "yaml" : "form";
  const [chosen, setChosen] = useState({ origin: initial.origin, preset: initial.preset });
  const [state, setState] = useState(() => stateOf(initial.spec));
  const [undo, setUndo] = useState<(() => void) | null>(null);
  const [showAll, setShowAll] = useState(false);
  const [words, setWords] = useState("");
  const [target, setTarget] = useState<string | null>(null);
  const [isCopying, setCopying] = useState(false);
  const [hasTemplates, setTemplates] = useState(false);
  const [isSimulating, setSimulating] = useState(false);
  const text = useSpecText(view === "yaml" || state.text !== null);
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  const { validation, plan } = useCheck(state.spec);
  const run = useStart({ spec: state.spec, source, draft });

  const submitErrors = run.error instanceof Problem ? run.error.errors : [];
  const errors = validation.data?.errors ?? submitErrors;
  const check = { errors, warnings: validation.data?.warnings ?? [], valid: validation.data?.valid ?? null, syntaxError: state.syntaxError };

  const setParam = useCallback((name: string, value: string | null) => setSearch((old) => {
    if (value === null) old.delete(name);
    else old.set(name, value);
    return old;
  }, { replace: true, preventScrollReset: true }), [setSearch]);
  const show = useCallback((next: string) => setParam("view", next === "yaml" ? "yaml" : null), [setParam]);
  const onFocused = useCallback(() => setTarget(null), []);
  const onNoField = useCallback(() => show("yaml"), [show]);

  const choose = (origin: Origin, preset: Preset) => {
    const before = { chosen, state };
    setUndo(() => () => { setChosen(before.chosen); setState(before.state); setUndo(null); });
    setChosen({ origin, preset: preset.name });
    setState(stateOf(specFor(origin, preset, presets, available, state.spec)));
    run.reset();
    setSearch((old) => { old.set("start", origin); old.set("preset", preset.name); return old; }, { replace: true, preventScrollReset: true });
  };
  const onOrigin = (origin: Origin) => {
    const preset = defaultPreset(origin, presets, available);
    if (preset !== undefined) choose(origin, preset);
  };
  const write = (path: string[], value: unknown) => setState((old) => ({
    ...old, spec: withKey(old.spec, path, value), text: old.text === null || text === null ? null : text.withValue(old.text, path, value),
  }));
  const lineOf = (pointer: string) => (view === "yaml" && text !== null ? text.lineOf(state.text ?? text.asYaml(state.spec), pointer) : null);
  const isRl = (state.spec["kind"] ?? "rl") === "rl";
  const asksForCheckpoint = view === "form" && needsCheckpoint(state.spec) && available.hasCheckpoint;
  return (
    <>
      {source === null && draft === null && (
        <>
          <OriginCards available={available} origins={ORIGINS.filter((origin) => presetsOf(origin, presets).length > 0)} chosen={chosen.origin} onChoose={onOrigin} />
          {chosen.origin === "demo" && lacksSample(available) && <Suspense fallback={null}><SampleNotice available={available} /></Suspense>}
          <PresetSelect
            label={chosen.origin === "demo" ? "Part of the demo" : "Algorithm"} presets={presetsOf(chosen.origin, presets)} chosen={chosen.preset} undo={undo}
            onChoose={(name) => choose(chosen.origin, presets.find((preset) => preset.name === name)!)}
          />
        </>
      )}
      <div className={classes.columns}>
        <div className={classes.main}>
          <div className={classes.bar}>
            <div className={classes.views} role="group" aria-label="View">
              {[{ name: "form", label: "Form" }, { name: "yaml", label: "YAML" }].map(({ name, label }) => <button key={name} type="button" aria-pressed={view === name} onClick={() => show(name)}>{label}</button>)}
            </div>
            {view === "form" && (
              <>
                <TextInput aria-label="Find a field" placeholder="Find a field" value={words} onChange={(event) => setWords(event.currentTarget.value)} className={classes.find} />
                <label className={classes.check}><input type="checkbox" checked={showAll} onChange={(event) => setShowAll(event.currentTarget.checked)} /> All fields</label>
              </>
            )}
            {view === "yaml" && <span className={classes.hint}>Comments stay while you also use the form. A preset replaces the text. JSON works too.</span>}
          </div>
          {asksForCheckpoint && (
            <p className={classes.notice} role="note" data-testid="missing">
              This run begins with the weights of a checkpoint: <Anchor component="button" type="button" size="sm" onClick={() => setTarget("/model/checkpoint")}>choose one</Anchor>.
            </p>
          )}
          {view === "yaml" ? (
            <Suspense fallback={<Waiting label="Loading the editor" />}>
              <TextView state={state} errors={errors} target={target} onChange={setState} onFocused={onFocused} />
            </Suspense>
          ) : state.syntaxError !== null ? (
            <Panel>
              <p className={classes.plain}>The YAML has a syntax error on line {state.syntaxError.line}: {state.syntaxError.message}. <Anchor component="button" type="button" size="sm" onClick={() => { show("yaml"); setTarget(""); }}>Fix it</Anchor> to use the form.</p>
            </Panel>
          ) : (
            <SpecForm spec={state.spec} errors={errors} showAll={showAll} search={words.trim()} target={target} onChange={write} onFocused={onFocused} onNoField={onNoField} />
          )}
        </div>
        <aside className={classes.rail} aria-label="Check and start">
          <StartPanel
            check={check} readOnly={readOnly} isStarting={run.isStarting} startLabel={draft === null ? "Start run" : "Submit draft"} onStart={run.start}
            onFocus={(pointer) => { if (state.syntaxError !== null) show("yaml"); setTarget(pointer); }}
          >
            {readOnly === null && <Button variant="default" loading={run.isSaving} disabled={state.syntaxError !== null} onClick={run.save} leftSection={<IconDeviceFloppy size={14} />} title="Keep the spec without starting it" data-testid="save-draft">Save draft</Button>}
            <Button variant="default" disabled={state.syntaxError !== null} onClick={() => setTemplates(true)} leftSection={<IconTemplate size={14} />}>Templates</Button>
            <Button variant="default" disabled={state.syntaxError !== null} onClick={() => setCopying(true)} leftSection={<IconCopy size={14} />} data-testid="copy-as">Copy as</Button>
            <Button variant="default" onClick={() => void import("./copy-as.tsx").then(({ downloadYaml }) => downloadYaml(state))} leftSection={<IconDownload size={14} />}>run.yaml</Button>
          </StartPanel>
          <ProblemNotice error={run.error} hidePointers={errors.map(({ pointer }) => pointer)} />
          <ProblemNotice error={validation.error} retry={() => void validation.refetch()} />
          <div className={classes.facts}>
            <Errors errors={errors} syntaxError={state.syntaxError} lines={lineOf} onFocus={(pointer) => { if (state.syntaxError !== null) show("yaml"); setTarget(pointer); }} />
            {state.syntaxError === null && <Warnings warnings={check.warnings} onFocus={setTarget} />}
            {state.syntaxError === null && <PlanFacts plan={plan.data} isLoading={plan.isLoading} />}
            <ProblemNotice error={plan.error} retry={() => void plan.refetch()} />
            {isRl && !isSimulating && <Button variant="default" onClick={() => setSimulating(true)}>Expected speed</Button>}
            {isRl && isSimulating && (
              <Suspense fallback={<Waiting />}>
                <SimulationPanel
                  spec={state.spec} canSimulate={check.valid === true && state.syntaxError === null}
                  onUse={(engines, ranks) => { write(["rollout", "engines"], engines); write(["trainer", "num_ranks"], ranks); }}
                />
              </Suspense>
            )}
          </div>
        </aside>
      </div>
      <p className="visually-hidden" role="status">{errors.length > 0 ? `${count(errors.length, "error")}, first: ${titleOf(errors[0]!.pointer)}` : ""}</p>
      {hasTemplates && (
        <Suspense fallback={null}>
          <TemplatesDialog spec={state.spec} readOnly={readOnly !== null} onUse={(spec) => setState(stateOf(spec))} onClose={() => setTemplates(false)} />
        </Suspense>
      )}
      {isCopying && <Suspense fallback={null}><CopyAs state={state} onClose={() => setCopying(false)} /></Suspense>}
    </>
  );
}

/** The YAML reader, once it is needed. */
function useSpecText(isNeeded: boolean): typeof import("./spec-text.ts") | null {
  const [text, setText] = useState<typeof import("./spec-text.ts") | null>(null);
  useEffect(() => {
    if (isNeeded && text === null) void import("./spec-text.ts").then(setText);
  }, [isNeeded, text]);
  return text;
}
