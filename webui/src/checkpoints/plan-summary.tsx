import { Link } from "react-router";

import type { RetentionPlan } from "../api/schema.d.ts";
import { bytes } from "../common/format.ts";
import { checkpointPath } from "./checkpoint-cells.tsx";
import { countText, keptByReason, largest } from "./retention.ts";
import classes from "./retention-panel.module.css";

const MAX_LISTED = 100;
const MAX_REASONS = 6;

/** What a policy would delete, its bytes, and why the rest is kept. */
export function PlanSummary({ plan, listed = true }: { plan: RetentionPlan; listed?: boolean }) {
  const shown = largest(plan.free, MAX_LISTED);
  const reasons = keptByReason(plan);
  return (
    <div className={classes.plan} data-testid="plan">
      <p className={classes.sum}>{plan.free.length === 0 ? "Nothing would be deleted now." : `${countText(plan.free.length)} of ${plan.free.length + plan.keep.length} stored would be deleted: ${bytes(plan.free_bytes)}.`}</p>
      {listed && shown.length > 0 && (
        <ul className={classes.list} tabIndex={0} aria-label="Checkpoints to delete">
          {shown.map(({ id, bytes: size }) => <li key={id}><Link to={checkpointPath(id)} className="mono">{id}</Link><span>{bytes(size)}</span></li>)}
          {plan.free.length > shown.length && <li>and {countText(plan.free.length - shown.length)} more, each smaller</li>}
        </ul>
      )}
      {reasons.length > 0 && (
        <>
          <span>{countText(plan.keep.length)} kept:</span>
          <ul className={classes.reasons}>
            {reasons.slice(0, MAX_REASONS).map(([reason, count]) => <li key={reason}>{reason}: {count}</li>)}
            {reasons.length > MAX_REASONS && <li>and {reasons.length - MAX_REASONS} more reasons</li>}
          </ul>
        </>
      )}
    </div>
  );
}
