/**
 * Lines as bars of one column of pixels each, from the lowest to the highest pixel that the line crosses there. Where many
 * points share a column this shows what the stroked path shows, in a fraction of the time: no edge is anti-aliased.
 */

import type uPlot from "uplot";

/** The bars of a line: of each column its number, and the upper and lower edge in pixels (y grows downwards). */
export type Bars = { columns: number[]; tops: number[]; bottoms: number[] };

/**
 * The bars of a line through points at these pixels. The x ascend; a point without a number is left out and the line spans
 * the gap. `columnPixels` is the width of a column.
 */
export function pixelBars(x: Float64Array, y: Float64Array, columnPixels: number): Bars {
  const bars: Bars = { columns: [], tops: [], bottoms: [] };
  let [column, top, bottom, before] = [NaN, 0, 0, NaN];
  const close = () => {
    bars.columns.push(column);
    bars.tops.push(top);
    bars.bottoms.push(bottom);
  };
  for (let index = 0; index < x.length; index += 1) {
    const at = y[index]!;
    if (Number.isNaN(at)) continue;
    const next = Math.floor(x[index]! / columnPixels);
    if (Number.isNaN(column)) [column, top, bottom] = [next, at, at];
    // From the column before to this one the line is straight, and each bar begins where the one before it ends.
    const slope = next === column ? 0 : (at - before) / (next - column);
    while (column < next) {
      close();
      column += 1;
      const end = column === next ? at : before + slope;
      top = Math.min(before, end);
      bottom = Math.max(before, end);
      before = end;
    }
    if (at < top) top = at;
    if (at > bottom) bottom = at;
    before = at;
  }
  if (!Number.isNaN(column)) close();
  return bars;
}

export type Ink = { color: string; alpha: number; /** columns with and without ink, in turn */ dash: readonly [number, number] | null };

/** Draw a series of a plot as bars, between the points that its x scale shows. */
export function drawBars(plot: uPlot, series: number, ink: Ink): void {
  const [xs, ys] = [plot.data[0], plot.data[series]!];
  const [first, last] = plot.series[0]!.idxs ?? [0, xs.length - 1];
  const [x, y] = [new Float64Array(last - first + 1), new Float64Array(last - first + 1)];
  // The x scale is linear: the positions of its ends are enough.
  const start = plot.valToPos(xs[first]!, "x", true);
  const pixelsOfOne = last === first ? 0 : (plot.valToPos(xs[last]!, "x", true) - start) / (xs[last]! - xs[first]!);
  for (let index = first; index <= last; index += 1) {
    const value = ys[index];
    x[index - first] = start + (xs[index]! - xs[first]!) * pixelsOfOne;
    y[index - first] = value === null || value === undefined ? NaN : plot.valToPos(value, "y", true);
  }
  const { left, top, width, height } = plot.bbox;
  const pixels = devicePixelRatio;
  const { columns, tops, bottoms } = pixelBars(x, y, pixels);
  const [inked, period] = ink.dash === null ? [1, 1] : [ink.dash[0], ink.dash[0] + ink.dash[1]];
  const { ctx } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.globalAlpha = ink.alpha;
  ctx.fillStyle = ink.color;
  for (let index = 0; index < columns.length; index += 1) {
    const column = columns[index]!;
    if (column % period >= inked) continue;
    const from = Math.round(tops[index]!);
    ctx.fillRect(Math.round(column * pixels), from, pixels, Math.max(pixels, Math.round(bottoms[index]!) - from));
  }
  ctx.restore();
}
