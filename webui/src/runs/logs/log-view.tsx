import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useRef } from "react";

import classes from "./logs-tab.module.css";
import { levelOf } from "./log-window.ts";

const LINE_HEIGHT = 18;

type Props = {
  lines: string[];
  /** byte of the log where the lines begin */
  start: number;
  wrap: boolean;
  follow: boolean;
  /** the line to show and mark, and a counter so that the same line can be asked for again */
  target: { line: number; request: number } | null;
  /** the reader scrolls away from the end */
  onLeaveEnd: () => void;
  onNearStart: () => void;
  onNearEnd: () => void;
};

/** The lines of a log. Only the visible ones are in the page. */
export function LogView({ lines, start, wrap, follow, target, onLeaveEnd, onNearStart, onNearEnd }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: lines.length, getScrollElement: () => box.current, estimateSize: () => LINE_HEIGHT, overscan: 30 });
  const rows = virtual.getVirtualItems();
  const longest = wrap ? 0 : lines.reduce((most, line) => Math.max(most, line.length), 0);
  useLayoutEffect(() => virtual.measure(), [wrap, virtual]);
  useEffect(() => {
    if (follow && lines.length > 0) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [follow, lines, wrap, virtual]);
  useEffect(() => {
    if (target !== null) virtual.scrollToIndex(target.line, { align: "center" });
  }, [target, virtual]);
  const [first, last] = [rows[0]?.index ?? 0, rows.at(-1)?.index ?? 0];
  // Earlier lines come above what is in view, which stays in its place.
  const before = useRef({ start, count: lines.length });
  useLayoutEffect(() => {
    const { start: oldStart, count } = before.current;
    before.current = { start, count: lines.length };
    if (start < oldStart && count > 0 && !follow) virtual.scrollToIndex(first + lines.length - count, { align: "start" });
  }, [start, lines.length, follow, first, virtual]);
  useEffect(() => {
    if (!follow && last >= lines.length - 1) onNearEnd();
  }, [follow, last, lines.length, onNearEnd]);
  return (
    <div
      ref={box} className={classes.text} tabIndex={0} role="region" aria-label="Log" data-testid="log" data-wrap={wrap} data-lines={lines.length}
      onWheel={({ deltaY }) => { if (deltaY < 0) { onLeaveEnd(); if (first === 0) onNearStart(); } }}
      onKeyDown={({ key }) => { if (["ArrowUp", "PageUp", "Home"].includes(key)) onLeaveEnd(); }}
    >
      <div style={{ height: virtual.getTotalSize(), position: "relative", minWidth: wrap ? undefined : `${longest}ch` }}>
        {rows.map(({ index, start: top, key }) => (
          <div key={key} ref={wrap ? virtual.measureElement : undefined} data-index={index} data-level={levelOf(lines[index]!)} data-target={index === target?.line} className={classes.line} style={{ transform: `translateY(${top}px)` }}>
            {lines[index] === "" ? " " : lines[index]}
          </div>
        ))}
      </div>
    </div>
  );
}
