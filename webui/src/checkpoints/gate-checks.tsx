import { IconCircleCheck, IconCircleX, IconClock } from "@tabler/icons-react";
import { Link } from "react-router";

import type { GateResult } from "../api/schema.d.ts";
import { number } from "../common/format.ts";
import classes from "./aliases-panel.module.css";
import { resultLabel } from "./alias-state.ts";

const ICONS = { passed: IconCircleCheck, failed: IconCircleX, missing: IconClock, pending: IconClock };

/** The result of a gate for a checkpoint, with each assertion and the measured value. */
export function GateChecks({ result }: { result: GateResult }) {
  const { label, tone } = resultLabel(result.status);
  const Icon = ICONS[result.status];
  return (
    <div className={classes.result} data-tone={tone} data-status={result.status}>
      <div className={classes.resultHead} title={result.why}><Icon size={14} aria-hidden /> {label}{result.run !== null && <Link to={`/runs/${result.run}`}>its evaluation</Link>}</div>
      {result.checks.length === 0 && result.why !== "" && <div className={classes.note}>{result.why}</div>}
      {result.checks.map((check) => (
        <div key={check.assertion} className={classes.check}>
          <code className="mono">{check.assertion}</code>
          <span data-holds={check.holds}>{check.value === null ? "not measured" : number(check.value)} {check.holds ? "holds" : "does not hold"}</span>
        </div>
      ))}
    </div>
  );
}
