import type { Coloring } from "./coloring.ts";
import classes from "./token-text.module.css";
import { PROBABILITY_CLASSES, versionsIn, type Piece } from "./tokens.ts";

const NAMED_VERSIONS = 12;

const SIGNED = {
  difference: {
    label: "log-probability of the trainer less that of the engine",
    classes: ["−1 or less", "−1 to −0.1", "about 0", "0.1 to 1", "1 or more"],
    note: "log-probability under the policy that the train step began with, less that at sampling: staleness and numerics",
  },
  advantage: {
    label: "advantage of the token",
    classes: ["−1 or less", "below 0", "0", "above 0", "1 or more"],
    note: "that the loss used: above 0 makes the token more probable",
  },
};

/** What the colors mean, in the order of their values. */
export function ColorLegend({ coloring, pieces }: { coloring: Coloring; pieces: Piece[] }) {
  if (coloring === "none") return null;
  if (coloring === "probability") {
    return (
      <ul className={classes.legend} aria-label="Legend: probability of the token when it was sampled">
        {PROBABILITY_CLASSES.map(({ label }, index) => <li key={label}><span className={classes.piece} data-level={`p${index}`}>abc</span> {label}</li>)}
        <li className={classes.note}>when it was sampled (behavior policy)</li>
      </ul>
    );
  }
  if (coloring === "difference" || coloring === "advantage") {
    const { label, note, classes: names } = SIGNED[coloring];
    return (
      <ul className={classes.legend} aria-label={`Legend: ${label}`}>
        {names.map((name, index) => <li key={name}><span className={classes.piece} data-level={`d${index}`}>abc</span> {name}</li>)}
        <li className={classes.note}>{note}</li>
      </ul>
    );
  }
  const versions = versionsIn(pieces);
  return (
    <ul className={classes.legend} aria-label="Legend: policy version that sampled the token">
      {versions.slice(0, NAMED_VERSIONS).map((version) => <li key={version}><span className={classes.piece} data-level={`v${version % 6}`}>abc</span> version {version}</li>)}
      {versions.length > NAMED_VERSIONS && <li className={classes.note}>and {versions.length - NAMED_VERSIONS} more</li>}
    </ul>
  );
}
