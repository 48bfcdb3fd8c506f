/** Geometry of a sparkline. */

export type Curve = { step: readonly number[]; reward: readonly (number | null)[] };

export type Sparkline = { path: string; end: { x: number; y: number }; first: number; last: number };

const PADDING = 3; // pixels around the line, so that its end point is not cut

/** The line through the finite points, in a box of `width` × `height` pixels. A gap breaks it. Null without points. */
export function sparkline(curve: Curve, width: number, height: number): Sparkline | null {
  const points = curve.step.map((step, index) => ({ step, reward: curve.reward[index] ?? null }));
  const finite = points.filter((point): point is { step: number; reward: number } => point.reward !== null);
  const [first, last] = [finite[0], finite.at(-1)];
  if (first === undefined || last === undefined) return null;
  const low = Math.min(...finite.map((point) => point.reward));
  const span = Math.max(...finite.map((point) => point.reward)) - low;
  const steps = Math.max(1, last.step - first.step);
  const x = (step: number) => round(PADDING + ((step - first.step) / steps) * (width - 2 * PADDING));
  // A line without any change lies in the middle.
  const y = (reward: number) => round(span === 0 ? height / 2 : height - PADDING - ((reward - low) / span) * (height - 2 * PADDING));
  let path = "";
  let broken = true;
  for (const { step, reward } of points) {
    if (reward !== null) path += `${broken ? "M" : "L"}${x(step)} ${y(reward)}`;
    broken = reward === null;
  }
  return { path, end: { x: x(last.step), y: y(last.reward) }, first: first.reward, last: last.reward };
}

function round(pixels: number): number {
  return Math.round(pixels * 10) / 10;
}
