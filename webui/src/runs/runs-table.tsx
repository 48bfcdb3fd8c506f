import { Checkbox } from "@mantine/core";
import { IconArrowDown, IconArrowUp } from "@tabler/icons-react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type CSSProperties } from "react";
import { useNavigate, useNavigationType } from "react-router";

import type { Run } from "../api/schema.d.ts";
import { useNow } from "../common/use-now.ts";
import { CELLS, RunName } from "./run-cells.tsx";
import { CHECKBOX_WIDTH, tableWidth, type ChosenColumn, type Column } from "./run-columns.ts";
import { nextSort, sortDirection } from "./run-list-view.ts";
import classes from "./runs-table.module.css";
import type { Curve } from "./sparkline.ts";

const [ROW_HEIGHT, HEAD_HEIGHT] = [52, 36];

/** Where each list was scrolled to, by its key, so that Back returns to the same row. */
const offsets = new Map<string, number>();

export type RunsTableProps = {
  runs: Run[];
  columns: ChosenColumn[];
  curves: Map<string, Curve>;
  sort: string;
  selected: ReadonlySet<string>;
  /** index of the row that the keyboard is at */
  active: number | null;
  /** identifies the filter and order, for the scroll position */
  listKey: string;
  busy: boolean;
  onSort: (sort: string) => void;
  onToggle: (index: number, range: boolean) => void;
  onToggleAll: () => void;
  onVisible: (first: number, last: number) => void;
};

/** The runs as a table of which only the visible rows are in the page. */
export function RunsTable({ runs, columns, curves, sort, selected, active, listKey, busy, onSort, onToggle, onToggleAll, onVisible }: RunsTableProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const navigate = useNavigate();
  const now = useNow(2_000);
  const restored = useNavigationType() === "POP" ? (offsets.get(listKey) ?? 0) : 0;
  const virtual = useVirtualizer({
    count: runs.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    getItemKey: (index) => runs[index]?.id ?? index,
    overscan: 10,
    scrollPaddingStart: HEAD_HEIGHT,
    initialOffset: restored,
    onChange: (instance) => offsets.set(listKey, instance.scrollOffset ?? 0),
  });
  const rows = virtual.getVirtualItems();
  const [first, last] = [rows[0]?.index ?? 0, rows.at(-1)?.index ?? 0];
  useEffect(() => onVisible(first, last), [first, last, onVisible]);

  useEffect(() => {
    if (active === null) return;
    virtual.scrollToIndex(active, { align: "auto" });
    // The row is in the page after the scroll. With focus on its link, Enter opens it and a screen reader names it.
    const frame = requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`tr[data-index="${active}"] a`)?.focus({ preventScroll: true }));
    return () => cancelAnimationFrame(frame);
  }, [active, virtual]);

  const above = rows[0]?.start ?? 0;
  const below = virtual.getTotalSize() - (rows.at(-1)?.end ?? 0);
  const every = runs.length > 0 && runs.every((run) => selected.has(run.id));
  return (
    <div ref={scroller} className={classes.scroller} aria-busy={busy} tabIndex={-1} onScroll={({ currentTarget }) => { currentTarget.dataset["sideways"] = String(currentTarget.scrollLeft > 0); }}>
      <table className={`${classes.table} tabular`} style={{ minWidth: tableWidth(columns), "--checkbox-width": `${CHECKBOX_WIDTH}px` } as CSSProperties} data-testid="runs" aria-rowcount={runs.length + 1}>
        <colgroup>
          <col style={{ width: CHECKBOX_WIDTH }} />
          <col />
          {columns.map((column) => <col key={column.id} style={{ width: column.width }} />)}
        </colgroup>
        <thead>
          <tr>
            <th scope="col"><Checkbox size="xs" aria-label="Select all loaded runs" checked={every} indeterminate={!every && selected.size > 0} onChange={onToggleAll} /></th>
            <Head column={{ label: "Run", sort: "name", ascendingFirst: true, help: "Name of the run, and why it waits or needs attention" }} sort={sort} onSort={onSort} />
            {columns.map((column) => <Head key={column.id} column={column} sort={sort} onSort={onSort} />)}
          </tr>
        </thead>
        <tbody>
          {above > 0 && <tr aria-hidden style={{ height: above }}><td colSpan={columns.length + 2} /></tr>}
          {rows.map(({ index, key }) => {
            const run = runs[index];
            if (run === undefined) return null;
            return (
              <tr
                key={key} data-run={run.id} data-index={index} data-active={index === active} data-selected={selected.has(run.id)}
                aria-rowindex={index + 2} className={classes.row} style={{ height: ROW_HEIGHT }} onClick={() => void navigate(`/runs/${run.id}`)}
              >
                <td onClick={(event) => { event.stopPropagation(); onToggle(index, event.shiftKey); }}>
                  <Checkbox size="xs" aria-label={`Select ${run.name}`} checked={selected.has(run.id)} onClick={(event) => event.stopPropagation()} onChange={(event) => onToggle(index, (event.nativeEvent as MouseEvent).shiftKey)} />
                </td>
                <td><RunName run={run} /></td>
                {columns.map((column) => <td key={column.id} data-right={column.right ?? false}>{CELLS[column.id](run, { now, curve: curves.get(run.id) })}</td>)}
              </tr>
            );
          })}
          {below > 0 && <tr aria-hidden style={{ height: below }}><td colSpan={columns.length + 2} /></tr>}
        </tbody>
      </table>
    </div>
  );
}

type HeadColumn = Pick<Column, "label" | "sort" | "ascendingFirst" | "right" | "help">;

function Head({ column, sort, onSort }: { column: HeadColumn; sort: string; onSort: (sort: string) => void }) {
  const { label, sort: key, right = false, help } = column;
  if (key === undefined) return <th scope="col" data-right={right} title={help}>{label}</th>;
  // Newest first is the order of a list without a sort.
  const direction = sort === "" && key === "created" ? "descending" : sortDirection(sort, key);
  return (
    <th scope="col" data-right={right} aria-sort={direction}>
      <button type="button" className={classes.sort} title={`${help}. Click to sort.`} onClick={() => onSort(nextSort(sort, key, !column.ascendingFirst))}>
        {label}
        {direction === "ascending" && <IconArrowUp size={13} aria-hidden />}
        {direction === "descending" && <IconArrowDown size={13} aria-hidden />}
      </button>
    </th>
  );
}
