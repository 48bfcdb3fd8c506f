import { Button } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type KeyboardEvent } from "react";

import type { Trajectory } from "../../api/schema.d.ts";
import { number, words } from "../../common/format.ts";
import { extremesText } from "./group-summary.ts";
import { RewardMark } from "./reward-mark.tsx";
import classes from "./trajectory-list.module.css";
import { versionsText } from "./version-spans.ts";

const ROW_HEIGHT = 62;
const ROWS_BEFORE_END = 20;

type Pages = { hasNextPage: boolean; isFetching: boolean; isFetchingNextPage: boolean; fetchNextPage: () => unknown };

type Props = {
  query: Pages;
  samples: Trajectory[];
  /** the one at the right */
  shown: string | null;
  onOpen: (id: number) => void;
  onTop: (isAtTop: boolean) => void;
  /** loads what came since; null while the list follows by itself */
  notice: (() => void) | null;
};

/** The trajectories, newest first. Only visible rows are in the page, and more load near the end. */
export function TrajectoryList({ query, samples, shown, onOpen, onTop, notice }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: samples.length, getScrollElement: () => scroller.current, estimateSize: () => ROW_HEIGHT, getItemKey: (index) => samples[index]!.id, overscan: 8 });
  const rows = virtual.getVirtualItems();
  const last = rows.at(-1)?.index ?? 0;
  const { hasNextPage, isFetching, fetchNextPage } = query;
  useEffect(() => {
    if (hasNextPage && !isFetching && last >= samples.length - ROWS_BEFORE_END) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage, last, samples.length]);

  const current = samples.findIndex((sample) => String(sample.id) === shown);
  const onKeyDown = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move === undefined) return;
    event.preventDefault();
    const next = samples[Math.min(samples.length - 1, Math.max(0, current + move))];
    if (next === undefined) return;
    onOpen(next.id);
    virtual.scrollToIndex(samples.indexOf(next), { align: "auto" });
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-id="${next.id}"]`)?.focus({ preventScroll: true }));
  };
  return (
    <>
      <p className={classes.count} role="status">
        {samples.length} loaded{hasNextPage ? ", more below" : ""}{query.isFetchingNextPage ? ", loading" : ""}
      </p>
      {notice !== null && <Button variant="light" size="compact-sm" fullWidth radius={0} leftSection={<IconRefresh size={13} />} onClick={notice}>New trajectories. Load them.</Button>}
      <div ref={scroller} className={classes.scroller} onScroll={({ currentTarget }) => onTop(currentTarget.scrollTop < ROW_HEIGHT)}>
        <div role="listbox" aria-label="Trajectories, newest first" style={{ height: virtual.getTotalSize(), position: "relative" }} onKeyDown={onKeyDown}>
          {rows.map(({ index, start }) => {
            const sample = samples[index]!;
            const isShown = index === current;
            return (
              <button
                key={sample.id} type="button" role="option" aria-selected={isShown} data-id={sample.id} data-testid="sample" className={classes.row}
                tabIndex={isShown || (current < 0 && index === 0) ? 0 : -1} style={{ height: ROW_HEIGHT, transform: `translateY(${start}px)` }} onClick={() => onOpen(sample.id)}
              >
                <span className={classes.line}>
                  <b className="tabular">step {sample.step}</b>
                  <RewardMark reward={sample.reward} />
                  <span className={classes.versions}>{versionsText(sample)}</span>
                </span>
                <span className={classes.text}>{sample.completion}</span>
                <span className={classes.why}>
                  group {sample.group_id}{sample.member === null ? "" : ` · member ${sample.member}`}
                  {sample.finish_reason !== "stop" && ` · ${words(sample.finish_reason).toLowerCase()}`}
                  {extremesText(sample) !== "" && ` · ${extremesText(sample)}`}
                  {sample.tokens !== null && ` · ${number(sample.tokens)} tokens`}
                </span>
              </button>
            );
          })}
        </div>
      </div>
    </>
  );
}
