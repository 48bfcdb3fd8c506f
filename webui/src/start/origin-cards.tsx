import { IconDatabase, IconFlag, IconSchool } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { Link } from "react-router";

import classes from "./origin-cards.module.css";
import type { Available, Origin } from "./origins.ts";
import { count } from "./faults.ts";

type Props = { available: Available; chosen: Origin; origins: Origin[]; onChoose: (origin: Origin) => void };

const CARDS = {
  data: { title: "Your data", icon: IconDatabase, text: "Train a base model on a dataset of yours, with an algorithm of your choice." },
  demo: { title: "Demo", icon: IconSchool, text: "Teach a tiny model to add digits. Minutes on two cores, and a whole run to look at." },
  checkpoint: { title: "From a checkpoint", icon: IconFlag, text: "Go on from the stored weights of a run: a warm start, or another try from the same point." },
};

/** What the run begins with. Arrows move the choice, as in any group of radio buttons. */
export function OriginCards({ available, chosen, origins, onChoose }: Props) {
  return (
    <div className={classes.cards} role="radiogroup" aria-label="What the run begins with">
      {origins.map((origin) => {
        const { title, icon: CardIcon, text } = CARDS[origin];
        return (
          <div key={origin} className={classes.card} data-origin={origin} data-chosen={origin === chosen}>
            <label>
              <input type="radio" name="origin" value={origin} checked={origin === chosen} onChange={() => onChoose(origin)} />
              <strong><CardIcon size={17} stroke={1.7} aria-hidden /> {title}</strong>
              <span>{text}</span>
            </label>
            <small>{stateOf(origin, available)}</small>
          </div>
        );
      })}
    </div>
  );
}

/** What the project has for this origin, or the way to it. */
function stateOf(origin: Origin, { datasets, models, hasCheckpoint }: Available): ReactNode {
  if (origin === "checkpoint") return hasCheckpoint ? "Stored checkpoints: choose one below" : "No stored checkpoint yet. The first run saves one.";
  const dataset = datasets.length > 0 ? count(datasets.length, "dataset") : origin === "data" ? <Link to="/datasets/new">Upload a dataset</Link> : "No dataset yet";
  const model = models.length > 0 ? count(models.length, "base model") : <Link to="/models">Register a base model</Link>;
  return <>{dataset} · {model}</>;
}
