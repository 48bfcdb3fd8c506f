import "uplot/dist/uPlot.min.css";

import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";

import { clock, number } from "../common/format.ts";
import classes from "./line-chart.module.css";
import { axisLabels, boundPieces, extremes, paddingOf, shownValue, smooth, type Points } from "./series.ts";

export type Line = { key: string; label: string; points: Points; /** 1 to 6, a colour of the palette */ colour: number; dashed?: boolean; /** never smoothed: whole numbers such as versions and maxima */ exact?: boolean };

export type Bound = { value: number; label: string; /** where it was changed: its value from each x on */ points?: Points };

type Props = {
  name: string;
  lines: Line[];
  axis: "step" | "time";
  smoothing: number;
  bound?: Bound;
  format?: (value: number) => string;
  logarithmic?: boolean;
  /** y range that is always shown, e.g. 0 to 1 for shares */
  floor?: number;
  ceiling?: number;
  height?: number;
  whole?: boolean;
};

function colourOf(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Re-renders when the colour scheme changes, since a canvas does not follow CSS variables. */
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

function aligned(lines: Line[], smoothing: number): uPlot.AlignedData {
  const tables = lines.map((line) => [line.points.x, line.points.y, smooth(line.points.y, line.exact ? 0 : smoothing)] as uPlot.AlignedData);
  if (tables.length === 0) return [[]];
  return uPlot.join(tables);
}

function boundPlugin(bound: Bound): uPlot.Plugin {
  return {
    hooks: {
      draw: (plot) => {
        const { left, top, width, height } = plot.bbox;
        const inside = (x: number) => Math.min(left + width, Math.max(left, Math.round(plot.valToPos(x, "x", true))));
        const { min, max } = plot.scales.x!;
        const pieces = boundPieces(bound.points, bound.value, min ?? 0, max ?? 0)
          .map(({ from, to, value }) => ({ from: inside(from), to: inside(to), y: Math.round(plot.valToPos(value, "y", true)) }))
          .filter((piece) => piece.to > piece.from && piece.y >= top && piece.y <= top + height);
        const newest = pieces.at(-1);
        if (newest === undefined) return;
        const context = plot.ctx;
        context.save();
        context.strokeStyle = colourOf("--bad");
        context.fillStyle = colourOf("--bad");
        context.lineWidth = devicePixelRatio;
        context.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
        context.beginPath();
        for (const { from, to, y } of pieces) {
          context.moveTo(from, y);
          context.lineTo(to, y);
        }
        context.stroke();
        context.textBaseline = "bottom";
        context.font = `600 ${11 * devicePixelRatio}px Inter Variable, sans-serif`;
        context.textAlign = pieces.length > 1 ? "right" : "left";
        const edge = pieces.length > 1 ? left + width - 4 * devicePixelRatio : left + 4 * devicePixelRatio;
        context.fillText(bound.label, edge, newest.y - 2 * devicePixelRatio);
        context.restore();
      },
    },
  };
}

type Look = Pick<Props, "axis" | "smoothing" | "bound" | "format" | "logarithmic" | "floor" | "ceiling" | "height" | "whole">;

/** Distances of ticks where only whole numbers mean something. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];

function options(lines: Line[], look: Look, width: number, onCursor: (index: number | null) => void): uPlot.Options {
  const ink = colourOf("--ink-faint");
  const grid = { stroke: colourOf("--grid"), width: 1 };
  const font = "11px Inter Variable, sans-serif";
  const isFaint = (line: Line) => look.smoothing > 0 && !line.exact;
  const series: uPlot.Series[] = [{}];
  for (const line of lines) {
    const stroke = colourOf(`--series-${line.colour}`);
    const dash = line.dashed ? [5, 4] : undefined;
    const few = (plot: uPlot, index: number) => Array.from(plot.data[index] ?? []).filter((value) => value !== null && value !== undefined).length < 3;
    series.push({
      label: line.label, stroke, width: isFaint(line) ? 1 : 1.7, alpha: isFaint(line) ? 0.28 : 1, dash, spanGaps: true,
      points: { show: few, size: 5 },
    });
    series.push({ label: `${line.label} (smoothed)`, stroke, width: 1.9, dash, spanGaps: true, show: isFaint(line), points: { show: false } });
  }
  return {
    width,
    height: look.height ?? 168,
    series,
    legend: { show: false },
    padding: [8, 10, 0, 0],
    cursor: {
      sync: { key: "run", setSeries: false },
      points: { size: 6, width: 1.5 },
      drag: { x: true, y: false, setScale: true },
      focus: { prox: -1 },
    },
    scales: {
      x: { time: false },
      y: {
        distr: look.logarithmic ? 3 : 1,
        range: look.logarithmic
          ? undefined
          : (_plot, min, max) => {
              const low = look.floor === undefined ? min : Math.min(look.floor, min);
              let high = look.ceiling === undefined ? max : Math.max(look.ceiling, max);
              if (look.bound !== undefined) high = Math.max(high, ...[look.bound.value, ...(look.bound.points?.y ?? [])].map((value) => value * 1.18));
              const pad = paddingOf(low, high);
              return [low === look.floor ? low : low - pad, high === look.ceiling ? high : high + pad];
            },
      },
    },
    axes: [
      {
        stroke: ink, grid, font, ticks: { show: false }, size: 24, gap: 4,
        space: 46,
        incrs: look.axis === "step" ? WHOLE : [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200],
        values: (_plot, splits) => splits.map((value) => (look.axis === "time" ? clock(value) : String(value))),
      },
      {
        stroke: ink, grid, font, ticks: { show: false }, gap: 4, space: 30,
        size: (_plot, values) => 14 + 6.1 * Math.max(2, ...(values ?? []).map((value) => value?.length ?? 0)),
        ...(look.whole ? { incrs: WHOLE } : {}),
        values: (_plot, splits) => axisLabels(splits, look.format),
      },
    ],
    plugins: look.bound === undefined ? [] : [boundPlugin(look.bound)],
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)] },
  };
}

/** Lines over train steps or time. Dragging zooms, a double click shows everything, the crosshair is shared. */
export function LineChart({ name, lines, axis, smoothing, bound, format, logarithmic, floor, ceiling, height, whole }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const scheme = useSchemeName();
  const data = useMemo(() => aligned(lines, smoothing), [lines, smoothing]);
  const shape = JSON.stringify([
    lines.map((line) => [line.key, line.label, line.colour, line.dashed]), axis, smoothing > 0, bound, logarithmic, floor, ceiling, height, whole, scheme,
  ]);
  const newest = useRef({ lines, data });
  newest.current = { lines, data };

  useEffect(() => {
    const element = holder.current;
    if (element === null) return;
    const created = new uPlot(
      options(newest.current.lines, { axis, smoothing, bound, format, logarithmic, floor, ceiling, height, whole }, element.clientWidth, setCursor),
      newest.current.data,
      element,
    );
    plot.current = created;
    const observer = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height: created.height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      created.destroy();
      plot.current = null;
    };
    // `shape` stands for everything that changes how the chart is built; new points alone go the cheap way below.
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);

  const hovered = cursor === null ? null : data[0]?.[cursor];
  const count = lines.reduce((sum, line) => sum + line.points.x.length, 0);
  const show = format ?? ((value: number) => number(value));
  return (
    <div className={classes.chart} data-chart={name} data-points={count}>
      <ul className={classes.legend}>
        {lines.map((line, index) => (
          <LegendEntry
            key={line.key} line={line} format={show} showsRange={lines.length <= 2}
            value={shownValue(line.points, cursor === null ? null : { value: data[1 + 2 * index]?.[cursor] as number | null | undefined })}
          />
        ))}
        {hovered !== undefined && hovered !== null && <li className="tabular" data-cursor={hovered}>{axis === "time" ? clock(hovered) : `step ${hovered}`}</li>}
      </ul>
      <div ref={holder} className={classes.plot} role="img" aria-label={`${name}: ${count} points`} />
    </div>
  );
}

function LegendEntry({ line, format, showsRange, value }: { line: Line; format: (value: number) => string; showsRange: boolean; value: number | null }) {
  const last = line.points.y.at(-1);
  const range = extremes(line.points.y);
  return (
    <li title={range === null ? undefined : `${line.label}: ${format(range.min)} to ${format(range.max)}`} data-line={line.key} data-last={last ?? ""} data-points={line.points.x.length}>
      <svg width="14" height="8" aria-hidden>
        <line x1="0" y1="4" x2="14" y2="4" stroke={`var(--series-${line.colour})`} strokeWidth="2.4" strokeDasharray={line.dashed ? "4 3" : undefined} />
      </svg>
      <span>{line.label}</span>
      <b className="tabular">{value === null ? "–" : format(value)}</b>
      {range !== null && showsRange && <small className="tabular">{format(range.min)} … {format(range.max)}</small>}
    </li>
  );
}
