import { IconCircle, IconCircleCheck, IconCircleX, IconLoader, IconPlayerStop } from "@tabler/icons-react";

import type { BootStage, RunDetail } from "../api/schema.d.ts";
import { clock } from "../common/format.ts";
import { useNow } from "../common/use-now.ts";
import { secondsOf } from "./boot.ts";
import classes from "./boot-checklist.module.css";

const LOOKS = {
  done: { icon: IconCircleCheck, word: "done" },
  active: { icon: IconLoader, word: "in progress" },
  failed: { icon: IconCircleX, word: "failed" },
  stopped: { icon: IconPlayerStop, word: "stopped" },
  waiting: { icon: IconCircle, word: "waiting" },
} as const;

/** How the newest attempt comes up: every stage with its duration, and what the open one waits for. */
export function BootChecklist({ run }: { run: RunDetail }) {
  const now = useNow(1_000);
  if (run.boot === null) return null;
  const { attempt_number: attempt, stages } = run.boot;
  return (
    <section className={classes.card} aria-label="Boot checklist" data-testid="boot-checklist">
      <h3 className={classes.title}>{attempt > 1 ? `Attempt ${attempt} comes up` : "The run comes up"}</h3>
      <ol className={classes.stages}>
        {stages.map((stage) => <Stage key={stage.name} stage={stage} now={now} />)}
      </ol>
    </section>
  );
}

function Stage({ stage, now }: { stage: BootStage; now: number }) {
  const { icon: Icon, word } = LOOKS[stage.state];
  const seconds = secondsOf(stage, now);
  return (
    <li className={classes.stage} data-stage={stage.name} data-state={stage.state}>
      <Icon size={16} stroke={2} aria-label={word} />
      <span className={classes.name}>{stage.title}</span>
      <span className="tabular">{seconds === null ? "" : clock(seconds)}</span>
      {stage.detail !== "" && <pre className={classes.detail}>{stage.detail}</pre>}
    </li>
  );
}
