import { number } from "../../common/format.ts";
import classes from "./reward-mark.module.css";

/** A reward as a number. `best` marks the highest one of a group. */
export function RewardMark({ reward, best = false }: { reward: number; best?: boolean }) {
  return <span className={`${classes.reward} tabular`} data-best={best}>{number(reward)}{best && <small> best</small>}</span>;
}
