import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";

import * as queries from "../api/queries.ts";
import type { AxisId } from "../charts/axes.ts";
import type { Points } from "../charts/series.ts";
import { reducedSpan, withDetail, type Range, type Span } from "../charts/zoom.ts";
import { MetricsStore, type MetricLine } from "./metrics-store.ts";
import { placeOn, type RunClock } from "./run-axis.ts";

export type ZoomedRun = { runId: string; metrics: MetricsStore; clock: RunClock };

type Part = { runId: string; name: string; axis: string; span: Span };

type Series = Parameters<MetricsStore["replace"]>[0];
type Detail = (runId: string, line: MetricLine) => MetricLine;

const NO_PARTS: Part[] = [];

/**
 * Fetch what a zoom shows at full resolution where the server has reduced it to buckets. The returned function gives a
 * line with the finer points, or as it is until they are there. It changes only with them.
 */
export function useZoomDetail(runs: readonly ZoomedRun[], names: readonly string[], axis: AxisId, zoom: Range | null): Detail {
  const wanted = zoom === null ? NO_PARTS : runs.flatMap((run) => reducedParts(run, names, axis, zoom));
  const key = JSON.stringify(wanted);
  const parts = useMemo(() => wanted, [key]);
  const found = useQueries({
    queries: parts.map(({ runId, name, axis: own, span }) => queries.metricDetail(runId, { names: name, axis: own === "time" ? "time" : "step", from_x: span.from, to_x: span.to })),
    combine: seriesOf,
  });
  return useMemo(() => detailed(parts, found), [parts, found]);
}

function seriesOf(results: { data?: { series: Series } }[]): (Series | undefined)[] {
  return results.map(({ data }) => data?.series);
}

function detailed(parts: readonly Part[], found: readonly (Series | undefined)[]): Detail {
  return (runId, line) => {
    const index = parts.findIndex((one) => one.runId === runId && one.name === line.name && one.axis === line.axis);
    const series = found[index];
    const detail = series === undefined ? null : detailOf(series, line);
    return detail === null ? line : { ...line, points: withDetail(line.points, detail, parts[index]!.span) };
  };
}

function reducedParts({ runId, metrics, clock }: ZoomedRun, names: readonly string[], axis: AxisId, zoom: Range): Part[] {
  return names.flatMap((name) => {
    const spans = new Map<string, Span>();
    for (const line of metrics.lines(name)) {
      if (line.points.buckets === undefined) continue;
      const span = reducedSpan(line.points, placeOn(axis, line, metrics, clock), zoom);
      if (span !== null) spans.set(line.axis, widest(spans.get(line.axis), span));
    }
    return [...spans].map(([own, span]) => ({ runId, name, axis: own, span }));
  });
}

/** Several sources of one metric are fetched at once. */
function widest(one: Span | undefined, other: Span): Span {
  if (one === undefined) return other;
  return {
    from: one.from === undefined || other.from === undefined ? undefined : Math.min(one.from, other.from),
    to: one.to === undefined || other.to === undefined ? undefined : Math.max(one.to, other.to),
    fromAt: Math.min(one.fromAt, other.fromAt),
    toAt: Math.max(one.toAt, other.toAt),
  };
}

/** A line of the answer is joined from attempts and restarts as those of the store. Joined once for each answer. */
const joinedAnswers = new WeakMap<object, MetricsStore>();

function detailOf(series: Series, { name, source, axis }: MetricLine): Points | null {
  let joined = joinedAnswers.get(series);
  if (joined === undefined) {
    joined = new MetricsStore(() => {});
    joined.replace(series);
    joinedAnswers.set(series, joined);
  }
  return joined.lines(name).find((line) => line.source === source && line.axis === axis)?.points ?? null;
}
