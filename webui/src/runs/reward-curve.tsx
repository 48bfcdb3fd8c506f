import { number } from "../common/format.ts";
import { sparkline, type Curve } from "./sparkline.ts";

const [WIDTH, HEIGHT] = [106, 26];

/** The reward of a run as a small line. Nothing without points. */
export function RewardCurve({ curve }: { curve: Curve | undefined }) {
  const line = curve === undefined ? null : sparkline(curve, WIDTH, HEIGHT);
  if (line === null || curve === undefined) return null;
  const label = `Reward from ${number(line.first)} at step ${curve.step[0]} to ${number(line.last)} at step ${curve.step.at(-1)}`;
  return (
    <svg width={WIDTH} height={HEIGHT} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label} data-curve={curve.step.length}>
      <title>{label}</title>
      <path d={line.path} fill="none" stroke="var(--series-1)" strokeWidth="1.5" strokeLinejoin="round" strokeLinecap="round" />
      <circle cx={line.end.x} cy={line.end.y} r="2" fill="var(--series-1)" />
    </svg>
  );
}
