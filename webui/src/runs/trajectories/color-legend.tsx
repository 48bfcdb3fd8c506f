import type { Coloring } from "./coloring.ts";
import classes from "./token-text.module.css";
import { PROBABILITY_CLASSES, versionsIn, type Piece } from "./tokens.ts";

const NAMED_VERSIONS = 12;

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
  const versions = versionsIn(pieces);
  return (
    <ul className={classes.legend} aria-label="Legend: policy version that sampled the token">
      {versions.slice(0, NAMED_VERSIONS).map((version) => <li key={version}><span className={classes.piece} data-level={`v${version % 6}`}>abc</span> version {version}</li>)}
      {versions.length > NAMED_VERSIONS && <li className={classes.note}>and {versions.length - NAMED_VERSIONS} more</li>}
    </ul>
  );
}
