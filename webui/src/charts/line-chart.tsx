import "uplot/dist/uPlot.min.css";

import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";

import { clock, number } from "../common/format.ts";
import classes from "./line-chart.module.css";
import { cssColor } from "./css-color.ts";
import { bandPairs, plotColumns, type Column, type Role } from "./columns.ts";
import { axisLabels, boundSegments, extremes, axisPadding, legendValue, type Points } from "./series.ts";

export type Line = { key: string; label: string; points: Points; /** index into the palette, 1 to 6 */ color: number; dashed?: boolean; /** never smoothed, for whole numbers such as versions and maxima */ exact?: boolean };

export type Bound = { value: number; label: string; /** for a bound that changed: its value from each x on */ points?: Points };

type Props = {
  name: string;
  lines: Line[];
  axis: "step" | "time";
  smoothing: number;
  bound?: Bound;
  format?: (value: number) => string;
  logarithmic?: boolean;
  /** y range that is always shown, for example 0 to 1 for fractions */
  floor?: number;
  ceiling?: number;
  height?: number;
  whole?: boolean;
};

/** Re-render when the color scheme changes, because a canvas does not follow CSS variables. */
function useSchemeName(): string {
  const read = () => document.documentElement.getAttribute("data-mantine-color-scheme") ?? "light";
  const [scheme, setScheme] = useState(read);
  useEffect(() => {
    const observer = new MutationObserver(() => setScheme(read()));
    observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
    return () => observer.disconnect();
  }, []);
  return scheme;
}

function aligned(lines: Line[], columns: Column[]): uPlot.AlignedData {
  if (columns.length === 0) return [[]];
  return uPlot.join(columns.map(({ line, values }) => [lines[line]!.points.x, values]));
}

function boundPlugin(bound: Bound): uPlot.Plugin {
  return {
    hooks: {
      draw: (plot) => {
        const { left, top, width, height } = plot.bbox;
        const inside = (x: number) => Math.min(left + width, Math.max(left, Math.round(plot.valToPos(x, "x", true))));
        const { min, max } = plot.scales.x!;
        const segments = boundSegments(bound.points, bound.value, min ?? 0, max ?? 0)
          .map(({ from, to, value }) => ({ from: inside(from), to: inside(to), y: Math.round(plot.valToPos(value, "y", true)) }))
          .filter((segment) => segment.to > segment.from && segment.y >= top && segment.y <= top + height);
        const newest = segments.at(-1);
        if (newest === undefined) return;
        const context = plot.ctx;
        context.save();
        context.strokeStyle = cssColor("--bad");
        context.fillStyle = cssColor("--bad");
        context.lineWidth = devicePixelRatio;
        context.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
        context.beginPath();
        for (const { from, to, y } of segments) {
          context.moveTo(from, y);
          context.lineTo(to, y);
        }
        context.stroke();
        context.textBaseline = "bottom";
        context.font = `600 ${12 * devicePixelRatio}px Inter Variable, sans-serif`;
        context.textAlign = segments.length > 1 ? "right" : "left";
        const edge = segments.length > 1 ? left + width - 4 * devicePixelRatio : left + 4 * devicePixelRatio;
        context.fillText(bound.label, edge, newest.y - 2 * devicePixelRatio);
        context.restore();
      },
    },
  };
}

type Appearance = Pick<Props, "axis" | "smoothing" | "bound" | "format" | "logarithmic" | "floor" | "ceiling" | "height" | "whole">;

/** Tick distances for values that are whole numbers. */
const INTEGER_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];

function options(lines: Line[], columns: Column[], appearance: Appearance, width: number, onCursor: (index: number | null) => void): uPlot.Options {
  const ink = cssColor("--ink-faint");
  const grid = { stroke: cssColor("--grid"), width: 1 };
  const font = "12px Inter Variable, sans-serif";
  const isFaint = (line: Line) => appearance.smoothing > 0 && !line.exact;
  const few = (plot: uPlot, index: number) => Array.from(plot.data[index] ?? []).filter((value) => value !== null && value !== undefined).length < 3;
  const series = columns.map(({ line: number, role }): uPlot.Series => {
    const line = lines[number]!;
    const stroke = cssColor(`--series-${line.color}`);
    const dash = line.dashed ? [5, 4] : undefined;
    switch (role) {
      case "low":
      case "high":
        return { label: `${line.label} (${role})`, width: 0, spanGaps: true, points: { show: false } };
      case "raw":
        return { label: line.label, stroke, width: isFaint(line) ? 1 : 1.7, alpha: isFaint(line) ? 0.28 : 1, dash, spanGaps: true, points: { show: few, size: 5 } };
      case "smoothed":
        return { label: `${line.label} (smoothed)`, stroke, width: 1.9, dash, spanGaps: true, show: isFaint(line), points: { show: false } };
    }
  });
  const bands = bandPairs(columns).map((pair): uPlot.Band => {
    const line = lines[columns[pair.series[1] - 1]!.line]!;
    return { ...pair, fill: `${cssColor(`--series-${line.color}`)}2e` };
  });
  return {
    width,
    height: appearance.height ?? 168,
    series: [{}, ...series],
    bands,
    legend: { show: false },
    padding: [8, 10, 0, 0],
    cursor: {
      sync: { key: "run", setSeries: false },
      points: { size: (_plot, index) => (columns[index - 1]?.role === "low" || columns[index - 1]?.role === "high" ? 0 : 6), width: 1.5 },
      drag: { x: true, y: false, setScale: true },
      focus: { prox: -1 },
    },
    scales: {
      x: { time: false },
      y: {
        distr: appearance.logarithmic ? 3 : 1,
        range: appearance.logarithmic
          ? undefined
          : (_plot, min, max) => {
              const low = appearance.floor === undefined ? min : Math.min(appearance.floor, min);
              let high = appearance.ceiling === undefined ? max : Math.max(appearance.ceiling, max);
              if (appearance.bound !== undefined) high = Math.max(high, ...[appearance.bound.value, ...(appearance.bound.points?.y ?? [])].map((value) => value * 1.18));
              const pad = axisPadding(low, high);
              return [low === appearance.floor ? low : low - pad, high === appearance.ceiling ? high : high + pad];
            },
      },
    },
    axes: [
      {
        stroke: ink, grid, font, ticks: { show: false }, size: 24, gap: 4,
        space: 46,
        incrs: appearance.axis === "step" ? INTEGER_STEPS : [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200],
        values: (_plot, splits) => splits.map((value) => (appearance.axis === "time" ? clock(value) : String(value))),
      },
      {
        stroke: ink, grid, font, ticks: { show: false }, gap: 4, space: 30,
        size: (_plot, values) => 14 + 6.7 * Math.max(2, ...(values ?? []).map((value) => value?.length ?? 0)),
        ...(appearance.whole ? { incrs: INTEGER_STEPS } : {}),
        values: (_plot, splits) => axisLabels(splits, appearance.format),
      },
    ],
    plugins: appearance.bound === undefined ? [] : [boundPlugin(appearance.bound)],
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)] },
  };
}

type Range = { min: number; max: number };

/** The part of the x axis that is zoomed into. Null if all points are shown. */
function zoomOf({ data, scales }: uPlot): Range | null {
  const [x, { min, max }] = [data[0], scales["x"]!];
  if (x.length === 0 || min == null || max == null) return null;
  return min > x[0]! || max < x.at(-1)! ? { min, max } : null;
}

/** Line chart over train steps or time. Drag to zoom, double-click to reset; all charts share one crosshair. */
export function LineChart({ name, lines, axis, smoothing, bound, format, logarithmic, floor, ceiling, height, whole }: Props) {
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const scheme = useSchemeName();
  const columns = useMemo(() => plotColumns(lines, smoothing), [lines, smoothing]);
  const data = useMemo(() => aligned(lines, columns), [lines, columns]);
  const shape = JSON.stringify([
    lines.map((line) => [line.key, line.label, line.color, line.dashed, line.points.buckets !== undefined]), axis, smoothing > 0, bound, logarithmic, floor, ceiling, height, whole, scheme,
  ]);
  const newest = useRef({ lines, columns, data });
  newest.current = { lines, columns, data };
  const zoom = useRef<Range | null>(null);

  useEffect(() => {
    const element = container.current;
    if (element === null) return;
    const created = new uPlot(
      options(newest.current.lines, newest.current.columns, { axis, smoothing, bound, format, logarithmic, floor, ceiling, height, whole }, element.clientWidth, setCursor),
      newest.current.data,
      element,
    );
    plot.current = created;
    const showZoom = () => {
      zoom.current = zoomOf(created);
      element.dataset["zoom"] = zoom.current === null ? "" : `${zoom.current.min} ${zoom.current.max}`;
    };
    (created.hooks.setScale ??= []).push((_plot, key) => { if (key === "x") showZoom(); });
    if (zoom.current !== null) created.setScale("x", zoom.current);
    const observer = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height: created.height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      created.destroy();
      plot.current = null;
    };
    // `shape` covers everything that requires a new chart. New points alone only update the data, in the effect below.
  }, [shape]);

  useEffect(() => {
    const drawn = plot.current;
    if (drawn === null || drawn.data === data) return;
    const kept = zoom.current;
    drawn.setData(data, kept === null);
    if (kept !== null) drawn.setScale("x", kept); // new points of a live run leave the part that is looked at
  }, [data]);

  const hovered = cursor === null ? null : data[0]?.[cursor];
  const count = lines.reduce((sum, line) => sum + line.points.x.length, 0);
  const valuesAt = (index: number, role: Role) => {
    const position = columns.findIndex((column) => column.line === index && column.role === role);
    return cursor === null || position < 0 ? undefined : (data[position + 1]?.[cursor] as number | null | undefined);
  };
  const show = format ?? ((value: number) => number(value));
  return (
    <div className={classes.chart} data-chart={name} data-points={count}>
      <ul className={classes.legend}>
        {lines.map((line, index) => (
          <LegendEntry
            key={line.key} line={line} format={show} showsRange={lines.length <= 2}
            value={legendValue(line.points, cursor === null ? null : { value: valuesAt(index, "raw") })}
            low={valuesAt(index, "low") ?? null} high={valuesAt(index, "high") ?? null}
          />
        ))}
        {hovered !== undefined && hovered !== null && <li className="tabular" data-cursor={hovered}>{axis === "time" ? clock(hovered) : `step ${Math.round(hovered * 10) / 10}`}</li>}
      </ul>
      <div ref={container} className={classes.plot} role="img" aria-label={`${name}: ${count} points`} />
    </div>
  );
}

type LegendEntryProps = {
  line: Line; format: (value: number) => string; showsRange: boolean; value: number | null;
  /** exact extremes of the bucket at the crosshair */
  low: number | null; high: number | null;
};

function LegendEntry({ line, format, showsRange, value, low, high }: LegendEntryProps) {
  const last = line.points.y.at(-1);
  const whole = extremes(line.points);
  const range = low !== null && high !== null ? { min: low, max: high } : showsRange ? whole : null;
  return (
    <li title={whole === null ? undefined : `${line.label}: ${format(whole.min)} to ${format(whole.max)}`} data-line={line.key} data-last={last ?? ""} data-points={line.points.x.length} data-min={whole?.min} data-max={whole?.max}>
      <svg width="14" height="8" aria-hidden>
        <line x1="0" y1="4" x2="14" y2="4" stroke={`var(--series-${line.color})`} strokeWidth="2.4" strokeDasharray={line.dashed ? "4 3" : undefined} />
      </svg>
      <span>{line.label}</span>
      <b className="tabular">{value === null ? "–" : format(value)}</b>
      {range !== null && <small className="tabular">{format(range.min)} … {format(range.max)}</small>}
    </li>
  );
}
