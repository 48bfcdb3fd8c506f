/** What the URL says about the charts of a page: x axis, smoothing, zoom and scales. */

import type { AxisId } from "./axes.ts";
import type { Range } from "./zoom.ts";

export type ChartView = {
  axis: AxisId;
  smoothing: number;
  zoom: Range | null;
  /** ids of the charts whose scale was changed from their default to the other one */
  switched: ReadonlySet<string>;
};

export const DEFAULT_SMOOTHING = 0.5;
export const MAX_SMOOTHING = 0.95;
const SEPARATOR = "..";

/** The view in the URL. Values that are none, as in an edited link, count as left out. */
export function readChartView(search: URLSearchParams, axes: readonly AxisId[]): ChartView {
  const axis = axes.find((one) => one === search.get("axis")) ?? axes[0]!;
  const smooth = Number(search.get("smooth") ?? NaN);
  return {
    axis,
    smoothing: smooth >= 0 && smooth <= MAX_SMOOTHING ? smooth : DEFAULT_SMOOTHING,
    zoom: readZoom(search.get("zoom")),
    switched: new Set((search.get("log") ?? "").split(",").filter((id) => id !== "")),
  };
}

function readZoom(text: string | null): Range | null {
  const ends = (text ?? "").split(SEPARATOR).map((end) => (end === "" ? NaN : Number(end)));
  const [min, max] = ends;
  return ends.length === 2 && Number.isFinite(min) && Number.isFinite(max) && min! < max! ? { min: min!, max: max! } : null;
}

/** Seven digits: exact to a pixel, and short. */
function end(value: number): string {
  return String(Number(value.toPrecision(7)));
}

export type ViewChange = Partial<Pick<ChartView, "axis" | "smoothing" | "zoom">> & { toggleScale?: string };

/** The URL after a change. Defaults are left out of it, and another axis has no zoom. */
export function changeChartView(search: URLSearchParams, change: ViewChange, axes: readonly AxisId[]): URLSearchParams {
  const result = new URLSearchParams(search);
  const set = (name: string, value: string) => { if (value === "") result.delete(name); else result.set(name, value); };
  if (change.axis !== undefined) {
    set("axis", change.axis === axes[0] ? "" : change.axis);
    if (change.axis !== readChartView(search, axes).axis) result.delete("zoom");
  }
  if (change.smoothing !== undefined) set("smooth", change.smoothing === DEFAULT_SMOOTHING ? "" : String(change.smoothing));
  if (change.zoom !== undefined) set("zoom", change.zoom === null ? "" : `${end(change.zoom.min)}${SEPARATOR}${end(change.zoom.max)}`);
  if (change.toggleScale !== undefined) {
    const { switched } = readChartView(search, axes);
    const id = change.toggleScale;
    set("log", (switched.has(id) ? [...switched].filter((one) => one !== id) : [...switched, id]).join(","));
  }
  return result;
}
