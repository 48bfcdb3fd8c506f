import { Checkbox } from "@mantine/core";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";

import type { Run } from "../api/schema.d.ts";
import { ago, number } from "../common/format.ts";
import { useNow } from "../common/use-now.ts";
import { RewardCurve } from "./reward-curve.tsx";
import { elapsedText, RunName, RunProgress } from "./run-cells.tsx";
import classes from "./run-cards.module.css";
import { RunStatus } from "./run-status.tsx";
import type { Curve } from "./sparkline.ts";

const CARD_HEIGHT = 132;

type Props = {
  runs: Run[];
  curves: Map<string, Curve>;
  selected: ReadonlySet<string>;
  onToggle: (index: number, range: boolean) => void;
  onVisible: (first: number, last: number) => void;
};

/** The runs on a phone: a card each, in the scroll of the page. */
export function RunCards({ runs, curves, selected, onToggle, onVisible }: Props) {
  const list = useRef<HTMLUListElement>(null);
  const now = useNow(2_000);
  const virtual = useWindowVirtualizer({
    count: runs.length,
    estimateSize: () => CARD_HEIGHT,
    getItemKey: (index) => runs[index]?.id ?? index,
    overscan: 6,
    scrollMargin: list.current?.offsetTop ?? 0,
  });
  const rows = virtual.getVirtualItems();
  const [first, last] = [rows[0]?.index ?? 0, rows.at(-1)?.index ?? 0];
  useEffect(() => onVisible(first, last), [first, last, onVisible]);
  return (
    <ul ref={list} className={`${classes.cards} tabular`} data-testid="runs" style={{ height: virtual.getTotalSize() }}>
      {rows.map(({ index, key, start }) => {
        const run = runs[index];
        if (run === undefined) return null;
        return (
          <li key={key} data-index={index} data-run={run.id} data-selected={selected.has(run.id)} ref={virtual.measureElement} className={classes.card} style={{ transform: `translateY(${start - virtual.options.scrollMargin}px)` }}>
            <div className={classes.head}>
              <Checkbox size="sm" aria-label={`Select ${run.name}`} checked={selected.has(run.id)} onChange={() => onToggle(index, false)} />
              <div className={classes.title}><RunName run={run} /></div>
              <div className={classes.badges}><RunStatus run={run} /></div>
            </div>
            <div className={classes.body}>
              <RunProgress run={run} />
              <RewardCurve curve={curves.get(run.id)} />
            </div>
            <div className={classes.foot}>
              <span>reward <b>{number(run.reward_mean)}</b></span>
              <span>staleness <b>{number(run.staleness_mean, 2)}</b></span>
              <span>{elapsedText(run, now)} · {ago(run.created_at, now)}</span>
            </div>
          </li>
        );
      })}
    </ul>
  );
}
