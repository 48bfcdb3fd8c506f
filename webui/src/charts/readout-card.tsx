import classes from "./line-chart.module.css";
import type { Line } from "./line-chart.tsx";
import { LineSample } from "./line-sample.tsx";
import { nearest } from "./readout.ts";

type Props = {
  lines: Line[];
  x: number;
  /** the largest distance on the x axis of a point that counts as being at the crosshair */
  within: number;
  /** the place of the crosshair in words */
  place: string;
  left: { pixels: number; isRight: boolean };
  format: (value: number) => string;
};

/** The value of each line at the crosshair, the highest first. A line without a point there has "–". */
export function ReadoutCard({ lines, x, within, place, left, format }: Props) {
  const rows = lines.map((line) => {
    const index = nearest(line.points, x, within);
    return { line, value: index === null ? null : line.points.y[index]! };
  });
  rows.sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
  return (
    <div className={classes.card} style={{ left: left.pixels, transform: left.isRight ? "translateX(calc(-100% - 12px))" : "translateX(12px)" }} data-testid="readout" data-x={x}>
      <strong className="tabular">{place}</strong>
      <ul>
        {rows.map(({ line, value }) => (
          <li key={line.key} data-line={line.key} data-value={value ?? ""}>
            <LineSample color={line.color} dashed={line.dashed ?? false} />
            <span>{line.label}</span>
            <b className="tabular">{value === null ? "–" : format(value)}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}
