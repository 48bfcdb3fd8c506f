import { cumulative, newestOf, overReference, type AxisId, type Reference } from "../charts/axes.ts";
import { NO_POINTS, overAmount, overSteps, overTime, type Points } from "../charts/series.ts";
import type { MetricLine, MetricsStore } from "./metrics-store.ts";

/** What places the points of a run in time. */
export type RunClock = {
  /** unix seconds at the start of the run */
  origin: number;
  gpuHoursAt: (at: number) => number;
};

const STEP_TIME_METRICS = ["reward/mean", "sft/loss", "dpo/loss", "policy/version", "time/step_seconds"];
const VERSION = "policy/version";
const TOKENS = "perf/trained_tokens";

/** Metrics without which points cannot be placed on an axis. */
export const AXIS_METRICS: Record<AxisId, readonly string[]> = { step: STEP_TIME_METRICS, time: [], version: [...STEP_TIME_METRICS, VERSION], tokens: [...STEP_TIME_METRICS, TOKENS], "gpu-hours": [] };

/** The points of a line where they lie on the axis. Empty if the run did not report what places them. */
export function placeOn(axis: AxisId, line: MetricLine, metrics: MetricsStore, clock: RunClock): Points {
  if (axis === "time") return overTime(line.points, clock.origin);
  if (axis === "gpu-hours") return overAmount(line.points, clock.gpuHoursAt);
  const steps = line.axis === "step" ? line.points : overKnownSteps(line.points, metrics);
  if (axis === "step") return steps;
  const reference = referenceOf(axis, metrics);
  return reference === null ? NO_POINTS : overReference(steps, reference);
}

function overKnownSteps(points: Points, metrics: MetricsStore): Points {
  const steps = STEP_TIME_METRICS.flatMap((name) => metrics.lines(name)).find(({ axis }) => axis === "step")?.points;
  return steps === undefined ? points : overSteps(points, steps);
}

/** Each reference is computed once for the points that it comes from, because all charts of a run use it. */
const computed = new WeakMap<Points, Reference>();

function referenceOf(axis: "version" | "tokens", metrics: MetricsStore): Reference | null {
  const points = metrics.lines(axis === "version" ? VERSION : TOKENS).find((line) => line.axis === "step")?.points;
  if (points === undefined) return null;
  const known = computed.get(points);
  if (known !== undefined) return known;
  const reference = axis === "version" ? newestOf(points) : cumulative(points);
  computed.set(points, reference);
  return reference;
}
