import { Button } from "@mantine/core";
import { IconCircle, IconCircleCheck } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { Link, useNavigate } from "react-router";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Me } from "../api/schema.d.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { demoRun } from "./demo-run.ts";
import classes from "./home-page.module.css";
import { Snippet } from "./quick-start.tsx";
import { SAMPLE_NAME } from "./sample-dataset.ts";
import { storeSampleDataset } from "./store-sample-dataset.ts";

/** The way from an empty project to its first run, with what is there already. */
export function FirstSteps({ me }: { me: Me }) {
  const datasets = useQuery(queries.datasets);
  const models = useQuery({ ...queries.models, refetchInterval: 10_000 });
  const presets = useQuery(queries.presets);
  const pool = useQuery(queries.pool());
  const readOnly = readOnlyReason(me.role);
  const error = datasets.error ?? models.error ?? presets.error;
  if (error !== null) return <ProblemNotice error={error} retry={() => { void datasets.refetch(); void models.refetch(); void presets.refetch(); }} />;
  if (datasets.data === undefined || models.data === undefined || presets.data === undefined) return <Waiting />;

  const names = datasets.data.data.filter((dataset) => dataset.latest !== null).map((dataset) => dataset.name);
  const ready = models.data.data.filter((model) => model.state === "READY").map((model) => model.name);
  const slots = pool.data?.slots.length ?? 0;
  const demo = demoRun(presets.data, { datasets: names, models: ready });
  return (
    <div className={classes.column}>
      <Panel title="First steps" aside={readOnly} flush>
        <ol className={classes.steps} data-testid="first-steps">
          <Step done={names.length > 0} title="A dataset" text={names.length > 0 ? names.slice(0, 5).join(", ") : "Prompts with the answers that a reward compares with. The sample task is to add digits, which a tiny model learns in minutes."}>
            {readOnly === null && !names.includes(SAMPLE_NAME) && <SampleDataset />}
            {readOnly === null && <Button component={Link} to="/datasets/new" variant="default">Upload yours</Button>}
          </Step>
          <Step done={ready.length > 0} title="A base model" text={ready.length > 0 ? ready.slice(0, 5).join(", ") : "From a model hub, a path on the nodes, or your disk. The commands below upload a tiny one."}>
            <Button component={Link} to="/models" variant="default">Base models</Button>
          </Step>
          <Step done={slots > 0} title="Slots to run on" text={slots > 0 ? `${slots} in pool ${pool.data?.name}` : "A node adds its GPUs, or CPU slots, when it joins the pool."}>
            <Button component={Link} to="/pool" variant="default">Pool</Button>
          </Step>
          <Step done={false} title="A run" text={"spec" in demo ? "The demo teaches the newest base model the sample task, about two minutes on two cores for the tiny one." : `The demo run needs ${demo.missing}.`}>
            {readOnly === null && "spec" in demo && <DemoRun spec={demo.spec} />}
            {readOnly === null && <Button component={Link} to="/runs/new" variant="default">Start a run</Button>}
          </Step>
        </ol>
      </Panel>
      <Panel title="Or all of it from the command line"><Snippet me={me} /></Panel>
    </div>
  );
}

function Step({ done, title, text, children }: { done: boolean; title: string; text: string; children: ReactNode }) {
  return (
    <li className={classes.step} data-done={done} data-step={title}>
      {done ? <IconCircleCheck size={19} stroke={1.8} aria-label="done" /> : <IconCircle size={19} stroke={1.6} aria-label="to do" />}
      <h3>{title}</h3>
      <p>{text}</p>
      <div className={classes.actions}>{children}</div>
    </li>
  );
}

function SampleDataset() {
  const client = useQueryClient();
  const [progress, setProgress] = useState("");
  const create = useMutation({
    mutationFn: () => storeSampleDataset(setProgress),
    onSettled: () => void client.invalidateQueries({ queryKey: queries.datasets.queryKey }),
  });
  return (
    <>
      <Button loading={create.isPending} onClick={() => create.mutate()} data-testid="sample-dataset">Create the sample</Button>
      {create.isPending && <span className={classes.since} role="status">{progress}</span>}
      <ProblemNotice error={create.error} />
    </>
  );
}

function DemoRun({ spec }: { spec: Record<string, unknown> }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const start = useMutation({
    mutationFn: () => post("/api/v1/runs", { body: { spec } }),
    onSuccess: (run) => {
      void client.invalidateQueries({ queryKey: ["runs"] });
      void navigate(`/runs/${run.id}`);
    },
  });
  return (
    <>
      <Button loading={start.isPending} onClick={() => start.mutate()} data-testid="demo-run">Start the demo</Button>
      <ProblemNotice error={start.error} />
    </>
  );
}
