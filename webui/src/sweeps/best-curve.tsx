import { useElementSize } from "@mantine/hooks";

import type { Sweep, Trial } from "../api/schema.d.ts";
import { number } from "../common/format.ts";
import { scaleOf } from "./coordinates.ts";
import classes from "./sweeps.module.css";
import { bestSoFar } from "./trials.ts";

const [HEIGHT, TOP, BOTTOM, LEFT, RIGHT] = [260, 16, 228, 64, 16];

/** Each trial's objective as a dot, and the best so far as a stepped line. */
export function BestCurve({ sweep, trials, active }: { sweep: Sweep; trials: Trial[]; active: number | null }) {
  const { ref, width } = useElementSize();
  const { objective } = sweep.plan;
  const points = bestSoFar(trials, objective.goal);
  const target = sweep.plan.stop?.target ?? null;
  if (points.length === 0) return <p className={classes.readout}>No trial has reported {objective.metric} yet.</p>;
  const scale = scaleOf([...points.map(({ value }) => value), ...(target === null ? [] : [target])], false);
  const x = (trial: number) => LEFT + ((trial - 1) / Math.max(1, sweep.trials - 1)) * Math.max(0, width - LEFT - RIGHT);
  const y = (value: number) => BOTTOM - (scale.position(value) ?? 0) * (BOTTOM - TOP);
  const [first, last] = [points[0]!, points.at(-1)!];
  const line = points.reduce((path, point, index) => (index === 0 ? `M${x(point.number)} ${y(point.best)}` : `${path}H${x(point.number)}V${y(point.best)}`), "");
  return (
    <div ref={ref}>
      <svg width={width} height={HEIGHT} role="img" aria-label={`Best ${objective.metric} after ${last.number} trials: ${number(last.best)}, from ${number(first.best)} at first`} data-testid="best-curve" data-best={last.best}>
        <g className={classes.axis}>
          <line x1={LEFT} x2={width - RIGHT} y1={BOTTOM} y2={BOTTOM} />
          {scale.ticks.map(({ at, label }) => <text key={label} x={LEFT - 8} y={BOTTOM - at * (BOTTOM - TOP)} dy="0.32em" textAnchor="end">{label}</text>)}
          <text x={LEFT} y={HEIGHT - 12}>1</text>
          <text x={width - RIGHT} y={HEIGHT - 12} textAnchor="end">{sweep.trials} trials</text>
        </g>
        {target !== null && <g className={classes.target}><line x1={LEFT} x2={width - RIGHT} y1={y(target)} y2={y(target)} /><text x={width - RIGHT} y={y(target) + 14} textAnchor="end">target {number(target)}</text></g>}
        <path d={`${line}H${x(last.number)}`} className={classes.best} />
        {points.map((point) => <circle key={point.number} cx={x(point.number)} cy={y(point.value)} r={point.number === active ? 5 : 3} className={classes.dot} data-active={point.number === active}><title>{`Trial ${point.number}: ${number(point.value)}, best so far ${number(point.best)}`}</title></circle>)}
      </svg>
    </div>
  );
}
