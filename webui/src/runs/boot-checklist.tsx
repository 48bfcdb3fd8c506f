import { IconCircle, IconCircleCheck, IconCircleX, IconLoader, IconPlayerStop } from "@tabler/icons-react";

import type { BootStage, RunDetail } from "../api/schema.d.ts";
import { clock } from "../common/format.ts";
import { useNow } from "../common/use-now.ts";
import { secondsOf } from "./boot.ts";
import classes from "./boot-checklist.module.css";

const APPEARANCES = {
  done: { icon: IconCircleCheck, label: "done" },
  active: { icon: IconLoader, label: "in progress" },
  failed: { icon: IconCircleX, label: "failed" },
  stopped: { icon: IconPlayerStop, label: "stopped" },
  waiting: { icon: IconCircle, label: "waiting" },
} as const;

/** The boot stages of the newest attempt with their duration, and what the active stage waits for. */
export function BootChecklist({ run }: { run: RunDetail }) {
  const now = useNow(1_000);
  if (run.boot === null) return null;
  const { attempt_number: attempt, stages } = run.boot;
  return (
    <section className={classes.card} aria-label="Boot checklist" data-testid="boot-checklist">
      <h2 className={classes.title}>{attempt > 1 ? `Starting attempt ${attempt}` : "Starting the run"}</h2>
      <ol className={classes.stages}>
        {stages.map((stage) => <Stage key={stage.name} stage={stage} now={now} />)}
      </ol>
    </section>
  );
}

function Stage({ stage, now }: { stage: BootStage; now: number }) {
  const { icon: Icon, label } = APPEARANCES[stage.state];
  const seconds = secondsOf(stage, now);
  return (
    <li className={classes.stage} data-stage={stage.name} data-state={stage.state}>
      <Icon size={16} stroke={2} aria-label={label} />
      <span className={classes.name}>{stage.title}</span>
      <span className="tabular">{seconds === null ? "" : clock(seconds)}</span>
      {stage.detail !== "" && <pre className={classes.detail}>{stage.detail}</pre>}
    </li>
  );
}
