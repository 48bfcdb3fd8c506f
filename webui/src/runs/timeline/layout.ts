/** Where the spans of a run's timeline lie on the canvas. Times are unix seconds, the rest are pixels. */

import type { Span } from "../../api/schema.d.ts";

export type View = { from: number; to: number };
/** `versions`: from the first generation with a version to the last one, over all trajectories of the lane. */
export type Lane = { name: string; top: number; height: number; rowHeight: number; bars: Bar[]; versions: Stretch[] };
export type Stretch = { version: number; start: number; end: number };
/** `row` is null for what the whole engine does: a load, a wait or an evaluation. */
export type Bar = { span: Span; row: number | null };
export type Box = { left: number; width: number; top: number; height: number };

export const LABEL_WIDTH = 128;
export const AXIS_HEIGHT = 22;
export const VERSION_STRIP_HEIGHT = 18; // above the rows of an engine
const LANE_GAP = 10;
const TRAINER_HEIGHT = 30;
const MAX_ROW_HEIGHT = 13;
const MIN_ROW_HEIGHT = 3;
const MAX_LANE_HEIGHT = 240;
const MIN_LANE_HEIGHT = 30;
const MIN_VIEW_SECONDS = 0.2;
const TICK_SECONDS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 86_400];

/**
 * A lane per engine, then the trainer's. All spans of one trajectory share a row, so that a weight load shows as a change of
 * color within one bar.
 */
export function layoutLanes(names: string[], spans: Span[]): Lane[] {
  const all = [...new Set([...names, ...spans.map((span) => span.lane)])];
  let top = AXIS_HEIGHT + LANE_GAP;
  return all.map((name) => {
    const { bars, rows } = packRows(spans.filter((span) => span.lane === name));
    const rowHeight = Math.max(MIN_ROW_HEIGHT, Math.min(MAX_ROW_HEIGHT, Math.floor(MAX_LANE_HEIGHT / Math.max(1, rows))));
    const height = rows === 0 ? TRAINER_HEIGHT : VERSION_STRIP_HEIGHT + Math.max(MIN_LANE_HEIGHT, rows * rowHeight);
    const lane = { name, top, height, rowHeight, bars, versions: versionStretches(bars) };
    top += height + LANE_GAP;
    return lane;
  });
}

export const heightOf = (lanes: Lane[]) => Math.max(AXIS_HEIGHT + LANE_GAP + TRAINER_HEIGHT, ...lanes.map((lane) => lane.top + lane.height)) + LANE_GAP;

function versionStretches(bars: Bar[]): Stretch[] {
  const stretches = new Map<string, Stretch>();
  for (const { span } of bars) {
    if (span.kind !== "generate" || span.version === null) continue;
    const key = `${span.attempt}|${span.version}`;
    const known = stretches.get(key) ?? { version: span.version, start: span.start, end: span.end };
    stretches.set(key, { version: span.version, start: Math.min(known.start, span.start), end: Math.max(known.end, span.end) });
  }
  return [...stretches.values()];
}

/** Give each trajectory the first row that is free from its first span to its last. */
function packRows(spans: Span[]): { bars: Bar[]; rows: number } {
  const trajectories = new Map<string, Span[]>();
  const bars: Bar[] = [];
  for (const span of spans) {
    const key = trajectoryKey(span);
    if (key === null) bars.push({ span, row: null });
    else trajectories.set(key, [...(trajectories.get(key) ?? []), span]);
  }
  const freeFrom: number[] = [];
  const ordered = [...trajectories.values()].sort((a, b) => a[0]!.start - b[0]!.start);
  for (const own of ordered) {
    const start = Math.min(...own.map((span) => span.start));
    const end = Math.max(...own.map((span) => span.end));
    let row = freeFrom.findIndex((free) => free <= start);
    if (row === -1) row = freeFrom.length;
    freeFrom[row] = end;
    bars.push(...own.map((span) => ({ span, row })));
  }
  return { bars, rows: freeFrom.length };
}

export function trajectoryKey(span: Span): string | null {
  return span.group_id === "" ? null : `${span.attempt}|${span.group_id}|${span.member}`;
}

export const timeToX = (time: number, view: View, width: number) => LABEL_WIDTH + ((time - view.from) / (view.to - view.from)) * (width - LABEL_WIDTH);
export const xToTime = (x: number, view: View, width: number) => view.from + ((x - LABEL_WIDTH) / (width - LABEL_WIDTH)) * (view.to - view.from);

export const isVisible = (span: Span, view: View) => span.end >= view.from && span.start <= view.to;

/** The bar's rectangle, clipped to the plot; at least one pixel wide. Call it for visible spans. */
export function boxOf(bar: Bar, lane: Lane, view: View, width: number): Box {
  const left = Math.max(LABEL_WIDTH, timeToX(bar.span.start, view, width));
  const right = Math.min(width, timeToX(bar.span.end, view, width));
  const above = lane.versions.length > 0 ? VERSION_STRIP_HEIGHT : 0;
  const rows = bar.row === null ? { top: lane.top + above, height: lane.height - above } : { top: lane.top + VERSION_STRIP_HEIGHT + bar.row * lane.rowHeight, height: lane.rowHeight - 1 };
  return { left, width: Math.max(1, right - left), ...rows };
}

/** The bar at this point. A trajectory's bar wins over what the whole engine does. */
export function hitTest(lanes: Lane[], view: View, width: number, x: number, y: number): Bar | null {
  const lane = lanes.find((one) => y >= one.top && y <= one.top + one.height);
  if (lane === undefined || x < LABEL_WIDTH) return null;
  const hits = lane.bars.filter((bar) => {
    if (!isVisible(bar.span, view)) return false;
    const box = boxOf(bar, lane, view, width);
    return x >= box.left - 1 && x <= box.left + box.width + 1 && y >= box.top && y <= box.top + box.height + 1;
  });
  return hits.find((bar) => bar.row !== null) ?? hits.sort((a, b) => a.span.end - a.span.start - (b.span.end - b.span.start))[0] ?? null;
}

/** Zoom by `factor` (below 1: in) around a time that stays where it is. */
export function zoomAround(view: View, at: number, factor: number): View {
  const width = view.to - view.from;
  const wanted = Math.max(MIN_VIEW_SECONDS, width * factor);
  const share = (at - view.from) / width;
  return { from: at - share * wanted, to: at + (1 - share) * wanted };
}

export const pan = (view: View, seconds: number): View => ({ from: view.from + seconds, to: view.to + seconds });

/** The window to fetch for a view: with a margin, on a coarse grid, so that small pans and each live update reuse it. */
export function fetchWindow(view: View): View {
  const grid = 2 ** Math.ceil(Math.log2(Math.max(MIN_VIEW_SECONDS, view.to - view.from)));
  return { from: Math.floor(view.from / grid) * grid, to: Math.ceil(view.to / grid) * grid };
}

/** Times of the axis, at round distances from `origin`. */
export function ticks(view: View, origin: number, most: number): number[] {
  const step = TICK_SECONDS.find((seconds) => (view.to - view.from) / seconds <= most) ?? TICK_SECONDS.at(-1)!;
  const found: number[] = [];
  for (let n = Math.ceil((view.from - origin) / step); origin + n * step <= view.to; n += 1) found.push(origin + n * step);
  return found;
}

/** Seconds since the timeline began: 4.2 s, 3:05.5, 1:02:05. */
export function axisLabel(seconds: number): string {
  if (seconds < 60) return `${Number(seconds.toFixed(2))} s`;
  const hundredths = Math.round(seconds * 100);
  const whole = Math.floor(hundredths / 100);
  const two = (value: number) => String(value).padStart(2, "0");
  const fraction = hundredths % 100 === 0 ? "" : `.${two(hundredths % 100).replace(/0$/, "")}`;
  const minutes = Math.floor(whole / 60);
  return `${minutes < 60 ? minutes : `${Math.floor(minutes / 60)}:${two(minutes % 60)}`}:${two(whole % 60)}${fraction}`;
}

/** The fraction of the view that the lane's spans of this kind cover. Spans of one kind may overlap. */
export function coverage(lane: Lane, kind: Span["kind"], view: View): number {
  let covered = 0;
  let reached = view.from;
  const own = lane.bars.map((bar) => bar.span).filter((span) => span.kind === kind && isVisible(span, view));
  for (const span of own.sort((a, b) => a.start - b.start)) {
    const start = Math.max(span.start, reached);
    const end = Math.min(span.end, view.to);
    if (end > start) covered += end - start;
    reached = Math.max(reached, end);
  }
  return covered / (view.to - view.from);
}

const VERBS: Record<Span["kind"], string> = {
  generate: "generates with", reward: "is scored after", load: "loads", wait: "waits at", evaluate: "evaluates",
  train: "trains", publish: "publishes", checkpoint: "writes a checkpoint of",
};

/** What a span says, as one line of text. */
export function describe(span: Span, origin: number): string {
  const subject = span.group_id === "" ? span.lane : `${span.lane}: group ${span.group_id}${span.member === null ? "" : `, member ${span.member}`}`;
  const verb = span.lane === "trainer" && span.kind === "wait" ? "waits for the batch of" : VERBS[span.kind];
  const version = span.version === null ? "" : ` version ${span.version}`;
  const outcome = span.outcome === "" || span.outcome === "finished" ? "" : span.outcome === "interrupted" ? ", then interrupted" : ", then lost";
  return `${subject} ${verb}${version} for ${seconds(span.end - span.start)}${outcome} (at ${axisLabel(span.start - origin)})`;
}

export const seconds = (value: number) => (value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(value < 10 ? 2 : 1)} s`);
