import { useState } from "react";

import { chosenTimeZone } from "../common/time-zone.ts";
import classes from "./usage.module.css";
import type { Part } from "./usage-view.ts";

type Props = { parts: Part[]; starts: string[]; bucket: "hour" | "day"; label: string; top: number; format: (value: number) => string };

/** A bar per hour or day, stacked by part, with a legend that reads the bar under the pointer. */
export function StackedBars({ parts, starts, bucket, label, top, format }: Props) {
  const [read, setRead] = useState<number | null>(null);
  const place = (index: number) => bucketName(starts[index] ?? "", bucket);
  const valueOf = (part: Part) => (read === null ? part.total : (part.values[read] ?? 0));
  const total = parts.reduce((sum, part) => sum + valueOf(part), 0);
  return (
    <div className={classes.chart}>
      <div className={classes.plot}>
        <div className={`${classes.axis} tabular`} aria-hidden><span>{format(top)}</span><span>{format(top / 2)}</span><span>0</span></div>
        <div>
          <div className={classes.bars} role="img" aria-label={label} onPointerLeave={() => setRead(null)} data-testid="usage-bars">
            {starts.map((start, index) => (
              <span key={start} data-read={read === index} onPointerEnter={() => setRead(index)}>
                {parts.map((part, place) => {
                  const height = (100 * (part.values[index] ?? 0)) / top;
                  return height > 0 && <i key={part.key} data-part={part.key} data-color={place + 1} style={{ height: `${height}%` }} />;
                })}
              </span>
            ))}
          </div>
          <div className={`${classes.place} tabular`}><span>{place(0)}</span><span>{place(starts.length - 1)}</span></div>
        </div>
      </div>
      <div className={classes.legend} data-testid="usage-legend">
        <strong className="tabular">{read === null ? "Whole period" : place(read)}: {format(total)}</strong>
        <ul>
          {parts.map((part, index) => (
            <li key={part.key}><i data-part={part.key} data-color={index + 1} aria-hidden /><span>{part.label}</span><b className="tabular">{format(valueOf(part))}</b></li>
          ))}
        </ul>
      </div>
    </div>
  );
}

/** Days are those of UTC, as the API counts them; hours are shown in the chosen time zone. */
function bucketName(start: string, bucket: "hour" | "day"): string {
  const at = new Date(start);
  if (bucket === "day") return at.toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
  return at.toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: chosenTimeZone() });
}
