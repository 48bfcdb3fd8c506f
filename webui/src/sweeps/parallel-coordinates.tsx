import { useElementSize } from "@mantine/hooks";
import { useMemo, type KeyboardEvent } from "react";

import type { Sweep, Trial } from "../api/schema.d.ts";
import { number } from "../common/format.ts";
import { axesOf, lineOf, OBJECTIVE, pathOf, ranks } from "./coordinates.ts";
import classes from "./sweeps.module.css";
import { labels, valueText } from "./trials.ts";

const [HEIGHT, TOP, BOTTOM, MARGIN] = [260, 40, 236, 64];
const MIN_AXIS_GAP = 96;

type Props = { sweep: Sweep; trials: Trial[]; active: number | null; onActive: (trial: number | null) => void; onOpen: (trial: Trial) => void };

/** An axis per parameter, a line per trial. The arrow keys go through the trials, Enter opens the run. */
export function ParallelCoordinates({ sweep, trials, active, onActive, onOpen }: Props) {
  const { ref, width } = useElementSize();
  const { parameters, objective } = sweep.plan;
  const names = useMemo(() => labels(parameters.map(({ pointer }) => pointer)), [parameters]);
  const inner = Math.max(width, 2 * MARGIN + parameters.length * MIN_AXIS_GAP);
  const axes = useMemo(() => axesOf(parameters, trials, names, objective.metric, MARGIN, inner - MARGIN), [parameters, trials, names, objective.metric, inner]);
  const rank = useMemo(() => ranks(trials, objective.goal), [trials, objective.goal]);
  const drawn = useMemo(() => [...trials].sort((one, other) => (rank.get(one.number) ?? -1) - (rank.get(other.number) ?? -1)), [trials, rank]); // the best on top
  const shown = drawn.find(({ number: trial }) => trial === active);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && shown !== undefined) return onOpen(shown);
    const step = event.key === "ArrowDown" || event.key === "ArrowRight" ? -1 : event.key === "ArrowUp" || event.key === "ArrowLeft" ? 1 : 0;
    if (step === 0 || drawn.length === 0) return;
    event.preventDefault();
    const at = drawn.findIndex(({ number: trial }) => trial === active);
    onActive(drawn[at === -1 ? drawn.length - 1 : (at + step + drawn.length) % drawn.length]!.number);
  };
  return (
    <div ref={ref}>
      <div
        className={classes.coordinates} role="listbox" tabIndex={0} aria-label="Trials as lines over their parameters, the best first" aria-activedescendant={shown === undefined ? undefined : `line-${shown.number}`}
        onKeyDown={onKeyDown} onFocus={() => { if (active === null) onActive(drawn.at(-1)?.number ?? null); }} onBlur={() => onActive(null)} onMouseLeave={() => onActive(null)} data-testid="coordinates"
      >
        <svg width={inner} height={HEIGHT} role="presentation">
          {drawn.map((trial) => {
            const path = pathOf(lineOf(trial, axes, TOP, BOTTOM));
            const share = rank.get(trial.number) ?? null;
            return (
              <g key={trial.number} role="presentation" onMouseEnter={() => onActive(trial.number)} onClick={() => onOpen(trial)}>
                <path d={path} className={classes.hit} role="presentation" />
                <path d={path} id={`line-${trial.number}`} role="option" aria-selected={trial.number === active} aria-label={trialText(trial, names, objective.metric)} className={classes.line} data-best={share === 1} data-unknown={share === null} style={{ opacity: share === null ? 0.5 : 0.25 + 0.75 * share }} />
              </g>
            );
          })}
          {shown !== undefined && <path d={pathOf(lineOf(shown, axes, TOP, BOTTOM))} className={classes.shown} role="presentation" />}
          {axes.map((axis) => (
            <g key={axis.key} className={classes.axis} aria-hidden>
              <line x1={axis.x} x2={axis.x} y1={TOP} y2={BOTTOM} />
              <text x={axis.x} y={16} textAnchor={axis.key === OBJECTIVE ? "end" : axis.x === MARGIN ? "start" : "middle"} dx={axis.key === OBJECTIVE ? MARGIN - 8 : axis.x === MARGIN ? 8 - MARGIN : 0} className={classes.axisName}>{axis.label}</text>
              {axis.ticks.map(({ at, label }) => <text key={label} x={axis.x + (axis.key === OBJECTIVE ? 6 : -6)} y={BOTTOM - at * (BOTTOM - TOP)} dy="0.32em" textAnchor={axis.key === OBJECTIVE ? "start" : "end"}>{label.length > 12 ? `${label.slice(0, 11)}…` : label}</text>)}
            </g>
          ))}
        </svg>
      </div>
      <p className={classes.readout} aria-live="polite" data-testid="readout">{shown === undefined ? "Point at a line, or focus the chart and use the arrow keys. Stronger lines are better trials." : trialText(shown, names, objective.metric)}</p>
    </div>
  );
}

function trialText(trial: Trial, names: ReadonlyMap<string, string>, metric: string): string {
  const values = Object.entries(trial.values).map(([pointer, value]) => `${names.get(pointer) ?? pointer} ${valueText(value)}`).join(", ");
  return `Trial ${trial.number}: ${values}; ${trial.objective === null ? `no ${metric} yet` : `${metric} ${number(trial.objective)}`}`;
}
