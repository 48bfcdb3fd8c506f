import "uplot/dist/uPlot.min.css";

import { useEffect, useEffectEvent, useMemo, useRef, useState } from "react";
import uPlot from "uplot";

import { number } from "../common/format.ts";
import { AXES, INTEGER_STEPS, type AxisId } from "./axes.ts";
import { alignColumns, bandPairs, hasFewValues, isCrowded, plotColumns, type Column, type Role } from "./columns.ts";
import { cssColor } from "./css-color.ts";
import classes from "./line-chart.module.css";
import { LineSample } from "./line-sample.tsx";
import { drawBars, type Ink } from "./pixel-bars.ts";
import { ReadoutCard } from "./readout-card.tsx";
import { axisLabels, boundSegments, extremes, axisPadding, legendValue, type Points } from "./series.ts";
import type { Range } from "./zoom.ts";

export type Line = { key: string; label: string; points: Points; /** index into the palette, 1 to 6 */ color: number; dashed?: boolean; /** never smoothed, for whole numbers such as versions and maxima */ exact?: boolean };

export type Bound = { value: number; label: string; /** for a bound that changed: its value from each x on */ points?: Points };

type Props = {
  name: string;
  lines: Line[];
  axis: AxisId;
  smoothing: number;
  zoom: Range | null;
  /** a drag across the chart, or null for a double click */
  onZoom: (zoom: Range | null) => void;
  /** values at the crosshair: above the chart, or as a card beside the pointer where many lines share a legend elsewhere */
  readout?: "legend" | "card";
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

type Handlers = { onCursor: (index: number | null) => void; onZoom: (zoom: Range | null) => void };

const DASH = [5, 4] as const;
const RAW_ALPHA = 0.28; // of the raw values behind a smoothed line

function options(lines: Line[], columns: Column[], appearance: Appearance, width: number, { onCursor, onZoom }: Handlers): uPlot.Options {
  const axis = AXES[appearance.axis];
  const ink = cssColor("--ink-faint");
  const grid = { stroke: cssColor("--grid"), width: 1 };
  const font = "12px Inter Variable, sans-serif";
  const isFaint = (line: Line) => appearance.smoothing > 0 && !line.exact;
  const few = (plot: uPlot, index: number) => hasFewValues(plot.data[index] ?? []);
  const series = columns.map(({ line: number, role }): uPlot.Series => {
    const line = lines[number]!;
    const stroke = cssColor(`--series-${line.color}`);
    const dash = line.dashed ? [...DASH] : undefined;
    switch (role) {
      case "low":
      case "high":
        return { label: `${line.label} (${role})`, width: 0, spanGaps: true, points: { show: false } };
      case "raw":
        return { label: line.label, stroke, width: isFaint(line) ? 1 : 1.7, alpha: isFaint(line) ? RAW_ALPHA : 1, dash, spanGaps: true, paths, points: { show: few, size: 5 } };
      case "smoothed":
        return { label: `${line.label} (smoothed)`, stroke, width: 1.9, dash, spanGaps: true, paths, show: isFaint(line), points: { show: false } };
    }
  });
  const inks = columns.map(({ line: number, role }): Ink | null => {
    const line = lines[number]!;
    if (role === "low" || role === "high") return null;
    return { color: cssColor(`--series-${line.color}`), alpha: role === "raw" && isFaint(line) ? RAW_ALPHA : 1, dash: line.dashed ? DASH : null };
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
    padding: [8, 16, 0, 0],
    cursor: {
      // Only the crosshair goes to the other charts. They take the zoom from the page, as this one does.
      sync: { key: "page", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      points: { size: (_plot, index) => (columns[index - 1]?.role === "low" || columns[index - 1]?.role === "high" ? 0 : 6), width: 1.5 },
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => { onZoom(null); return null; } },
      focus: { prox: -1 },
      hover: { prox: SNAP_PIXELS }, // no dot at the end of a line that ended long before
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
        ...(axis.distances === undefined ? {} : { incrs: axis.distances }),
        values: (_plot, splits) => splits.map(axis.tick),
      },
      {
        stroke: ink, grid, font, ticks: { show: false }, gap: 4, space: 30,
        size: (_plot, values) => 14 + 6.7 * Math.max(2, ...(values ?? []).map((value) => value?.length ?? 0)),
        ...(appearance.whole ? { incrs: INTEGER_STEPS } : {}),
        values: (_plot, splits) => axisLabels(splits, appearance.format),
      },
    ],
    plugins: appearance.bound === undefined ? [] : [boundPlugin(appearance.bound)],
    hooks: {
      drawSeries: [(plot, index) => {
        const ink = inks[index - 1] ?? null;
        if (ink !== null && isCrowdedPlot(plot)) drawBars(plot, index, ink);
      }],
      setCursor: [(plot) => onCursor(plot.cursor.idx ?? null)],
      setSelect: [(plot) => {
        const { left, width: selected } = plot.select;
        if (selected === 0) return;
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        onZoom({ min: plot.posToVal(left, "x"), max: plot.posToVal(left + selected, "x") });
      }],
    },
  };
}

function isCrowdedPlot(plot: uPlot): boolean {
  return isCrowded(plot.series.length - 1, plot.series[0]!.idxs ?? [0, plot.data[0].length - 1], plot.bbox.width / devicePixelRatio);
}

const linear = uPlot.paths.linear!();

/** The path of a line; none where it is drawn as bars. */
const paths: uPlot.Series.PathBuilder = (plot, series, first, last) => (isCrowdedPlot(plot) ? null : linear(plot, series, first, last));

/** Show a part of the x axis, or all points. */
function showRange(plot: uPlot, zoom: Range | null): void {
  const x = plot.data[0];
  const whole = { min: x[0]!, max: x.at(-1)! };
  // uPlot widens a range of one point itself.
  if (zoom !== null || x.length > 0) plot.setScale("x", zoom ?? whole);
}

/** Line chart over an x axis. All charts of a page share one crosshair and one zoom. */
export function LineChart({ name, lines, axis, smoothing, zoom, onZoom, readout = "legend", bound, format, logarithmic, floor, ceiling, height, whole }: Props) {
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const scheme = useSchemeName();
  const columns = useMemo(() => plotColumns(lines, smoothing), [lines, smoothing]);
  const data = useMemo(() => alignColumns(lines, columns) as uPlot.AlignedData, [lines, columns]);
  const shape = JSON.stringify([
    lines.map((line) => [line.key, line.label, line.color, line.dashed, line.points.buckets !== undefined]), axis, smoothing > 0, bound, logarithmic, floor, ceiling, height, whole, scheme,
  ]);
  const newest = useRef({ lines, columns, data, zoom });
  newest.current = { lines, columns, data, zoom };
  const onCursor = useEffectEvent((index: number | null) => {
    // Of charts with a card only the one below the pointer shows it.
    if (readout === "legend" || container.current?.matches(":hover")) setCursor(index);
    else setCursor(null);
  });
  const zoomTo = useEffectEvent(onZoom);

  useEffect(() => {
    const element = container.current;
    if (element === null) return;
    const created = new uPlot(
      options(newest.current.lines, newest.current.columns, { axis, smoothing, bound, format, logarithmic, floor, ceiling, height, whole }, element.clientWidth, { onCursor: (index) => onCursor(index), onZoom: (range) => zoomTo(range) }),
      newest.current.data,
      element,
    );
    plot.current = created;
    if (newest.current.zoom !== null) showRange(created, newest.current.zoom);
    const observer = new ResizeObserver(() => created.setSize({ width: element.clientWidth, height: created.height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      created.destroy();
      plot.current = null;
    };
    // `shape` covers everything that requires a new chart. New points and another zoom update the one that is there.
  }, [shape]);

  useEffect(() => {
    const drawn = plot.current;
    if (drawn === null || drawn.data === data) return;
    drawn.setData(data, newest.current.zoom === null);
    if (newest.current.zoom !== null) showRange(drawn, newest.current.zoom); // new points of a live run leave the part that is looked at
  }, [data]);

  useEffect(() => {
    if (plot.current !== null) showRange(plot.current, zoom);
  }, [zoom]);

  const hovered = cursor === null ? null : data[0]?.[cursor];
  const count = lines.reduce((sum, line) => sum + line.points.x.length, 0);
  const valuesAt = (index: number, role: Role) => {
    const position = columns.findIndex((column) => column.line === index && column.role === role);
    return cursor === null || position < 0 ? undefined : (data[position + 1]?.[cursor] as number | null | undefined);
  };
  const show = format ?? ((value: number) => number(value));
  return (
    <div className={classes.chart} data-chart={name} data-points={count}>
      {readout === "legend" && <ul className={classes.legend}>
        {lines.map((line, index) => (
          <LegendEntry
            key={line.key} line={line} format={show} showsRange={lines.length <= 2}
            value={legendValue(line.points, cursor === null ? null : { value: valuesAt(index, "raw") })}
            low={valuesAt(index, "low") ?? null} high={valuesAt(index, "high") ?? null}
          />
        ))}
        {hovered !== undefined && hovered !== null && <li className="tabular" data-cursor={hovered}>{AXES[axis].place(hovered)}</li>}
      </ul>}
      <div ref={container} className={classes.plot} data-zoom={zoom === null ? "" : `${zoom.min} ${zoom.max}`} role="img" aria-label={`${name}: ${count} points`}>
        {readout === "card" && plot.current !== null && hovered !== undefined && hovered !== null && (
          <ReadoutCard lines={lines} x={hovered} within={withinPixels(plot.current, SNAP_PIXELS)} place={AXES[axis].place(hovered)} left={leftOf(plot.current, hovered)} format={show} />
        )}
      </div>
    </div>
  );
}

const SNAP_PIXELS = 12; // a line without a point so near to the crosshair has no value there

function withinPixels(plot: uPlot, pixels: number): number {
  return Math.abs(plot.posToVal(pixels, "x") - plot.posToVal(0, "x"));
}

/** Where the crosshair stands in the chart, and whether it is in its right half. */
function leftOf(plot: uPlot, x: number): { pixels: number; isRight: boolean } {
  const pixels = plot.valToPos(x, "x");
  return { pixels: pixels + plot.bbox.left / devicePixelRatio, isRight: pixels > plot.bbox.width / devicePixelRatio / 2 };
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
      <LineSample color={line.color} dashed={line.dashed ?? false} />
      <span>{line.label}</span>
      <b className="tabular">{value === null ? "–" : format(value)}</b>
      {range !== null && <small className="tabular">{format(range.min)} … {format(range.max)}</small>}
    </li>
  );
}
