import "@mantine/core/styles/NumberInput.css";
import { Button, NumberInput, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { post } from "../api/http.ts";
import type { SimulatedLayout, Simulation } from "../api/schema.d.ts";
import { compact, duration, number, percent } from "../common/format.ts";
import type { Json } from "../common/json.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { count } from "./faults.ts";
import { RailSection } from "./rail.tsx";
import classes from "./rail.module.css";
import { changeText, sourceText, splitText } from "./simulation-words.ts";

type Props = { spec: Json; canSimulate: boolean; onUse: (engines: number, ranks: number) => void };

/** Simulates the run on a number of slots: the fastest split, what it reaches, and what each assumption changes. */
export function SimulationPanel({ spec, canSimulate, onUse }: Props) {
  const [devices, setDevices] = useState<number | "">("");
  const [gpu, setGpu] = useState("");
  const run = useMutation({
    mutationFn: async () => ({
      spec, found: await post("/api/v1/runs/simulate", { body: { spec, ...(devices === "" ? {} : { devices }), ...(gpu.trim() === "" ? {} : { gpu: gpu.trim() }) } }),
    }),
  });
  return (
    <RailSection title="Expected speed">
      <div className={classes.facts} data-testid="simulation">
        <p className={classes.faint}>Simulates gate, engines, buffer and trainer. Nothing is created.</p>
        <div className={classes.inputs}>
          <NumberInput label="Slots" placeholder="as the spec" min={2} max={4096} allowDecimal={false} value={devices} onChange={(value) => setDevices(typeof value === "number" ? value : "")} />
          <TextInput label="GPU" placeholder="measured, else the pool's" value={gpu} onChange={(event) => setGpu(event.currentTarget.value)} />
        </div>
        <Button variant="default" size="compact-sm" loading={run.isPending} disabled={!canSimulate} onClick={() => run.mutate()} title={canSimulate ? undefined : "The spec has to be valid first"}>
          {run.data === undefined ? "Simulate" : "Simulate again"}
        </Button>
        <ProblemNotice error={run.error} />
        {run.data !== undefined && !run.isPending && run.error === null && <Found found={run.data.found} isOld={run.data.spec !== spec} onUse={onUse} />}
      </div>
    </RailSection>
  );
}

function Found({ found, isOld, onUse }: { found: Simulation; isOld: boolean; onUse: Props["onUse"] }) {
  const { best, given } = found;
  const isBest = given !== null && given.engines === best.engines && given.trainer_ranks === best.trainer_ranks;
  return (
    <>
      {isOld && <p className={classes.faint} role="note">The spec has changed since.</p>}
      <dl>
        <dt>Fastest split of {count(found.devices, "slot")}</dt>
        <dd>
          <strong>{splitText(best)}</strong>
          {isBest ? <div className={classes.faint}>as in the spec</div> : <div><button type="button" className={classes.link} onClick={() => onUse(best.engines, best.trainer_ranks)}>Use this split</button></div>}
        </dd>
        <dt>Throughput</dt>
        <dd>{compact(best.trained_tokens_per_second)} trained tokens/s{given !== null && !isBest && `; the spec's split ${compact(given.trained_tokens_per_second)}`}</dd>
        <dt>Step</dt>
        <dd>{duration(best.step_seconds)}; trainer idle {percent(best.trainer_idle_frac, 0)}, engines idle {percent(best.rollout_idle_frac, 0)}</dd>
        <dt>Staleness</dt>
        <dd>mean {number(best.staleness_mean, 2)}, p95 {number(best.staleness_p95, 2)}; a max staleness of {found.sufficient_staleness} is as fast as any</dd>
        <dt>Whole run</dt>
        <dd>{duration(found.run_seconds)}, {number(found.gpu_hours)} slot-hours</dd>
        <dt>Service times</dt>
        <dd>{sourceText(found)}</dd>
      </dl>
      {found.advice.map((advice) => <p key={advice} className={classes.faint}>{advice}</p>)}
      <details>
        <summary>What changes it</summary>
        <table className={classes.table}>
          <thead><tr><th>Change</th><th>tokens/s</th><th>Trainer idle</th></tr></thead>
          <tbody className="tabular">
            {[...found.splits, ...found.staleness, ...found.batches, ...found.sensitivity].map((layout, index) => <Row key={index} layout={layout} best={best} />)}
          </tbody>
        </table>
      </details>
    </>
  );
}

function Row({ layout, best }: { layout: SimulatedLayout; best: SimulatedLayout }) {
  return <tr><td>{changeText(layout, best)}</td><td>{compact(layout.trained_tokens_per_second)}</td><td>{percent(layout.trainer_idle_frac, 0)}</td></tr>;
}
