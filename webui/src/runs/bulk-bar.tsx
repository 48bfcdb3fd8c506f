// Of the checkboxes in its menu.
import "@mantine/core/styles/CheckboxCard.css";
import "@mantine/core/styles/CheckboxIndicator.css";
import { Button, Menu } from "@mantine/core";
import { IconChartLine, IconColumns3, IconPlayerStop, IconTag, IconX } from "@tabler/icons-react";
import { lazy, Suspense } from "react";
import { Link } from "react-router";

import type { Run } from "../api/schema.d.ts";
import { useDialog } from "../common/use-dialog.ts";
import { comparePath, MAX_RUNS } from "../compare/compare-view.ts";
import { COLUMNS, type ChosenColumn, type ColumnId } from "./run-columns.ts";
import { stopPlan } from "./run-selection.ts";
import classes from "./bulk-bar.module.css";

const StopDialog = lazy(async () => ({ default: (await import("./bulk-dialogs.tsx")).StopDialog }));
const TagDialog = lazy(async () => ({ default: (await import("./bulk-dialogs.tsx")).TagDialog }));

type Props = { loaded: string; runs: Run[]; readOnly: string | null; onClear: () => void; columns: ChosenColumn[]; onColumn: ((id: ColumnId) => void) | null };

/** Above the list: how many runs are loaded, or what can be done with the selected ones; and the choice of columns. */
export function BulkBar({ loaded, runs, readOnly, onClear, columns, onColumn }: Props) {
  const { shown, show, close } = useDialog<"stop" | "tag">();
  const { stop, cancel } = stopPlan(runs);
  const nothingToStop = stop.length + cancel.length === 0 ? "All selected runs have ended or are stopping" : null;
  return (
    <div className={classes.bar} role="toolbar" aria-label="Selected runs">
      {runs.length === 0 ? <span className={classes.count}>{loaded}</span> : (
        <>
          <strong className={classes.count} data-testid="selected">{runs.length} selected</strong>
          {runs.length <= MAX_RUNS
            ? <Button variant="default" leftSection={<IconChartLine size={14} />} component={Link} to={comparePath(runs.map((run) => run.id))}>Compare</Button>
            : <span title={`Select at most ${MAX_RUNS} runs to compare them`}><Button variant="default" leftSection={<IconChartLine size={14} />} disabled>Compare</Button></span>}
          {readOnly === null ? (
            <>
              <span title={nothingToStop ?? undefined}>
                <Button variant="default" leftSection={<IconPlayerStop size={14} />} disabled={nothingToStop !== null} onClick={() => show("stop")} data-testid="bulk-stop">Stop</Button>
              </span>
              <Button variant="default" leftSection={<IconTag size={14} />} onClick={() => show("tag")} data-testid="bulk-tag">Tag</Button>
            </>
          ) : <span className={classes.note} title={readOnly}>Read-only access</span>}
          <Button variant="subtle" color="gray" leftSection={<IconX size={14} />} onClick={onClear}>Clear</Button>
        </>
      )}
      {onColumn !== null && <ColumnMenu columns={columns} onColumn={onColumn} />}
      {shown !== null && (
        <Suspense>
          {shown === "stop" ? <StopDialog runs={runs} onClose={close} /> : <TagDialog runs={runs} onClose={close} />}
        </Suspense>
      )}
    </div>
  );
}

function ColumnMenu({ columns, onColumn }: { columns: ChosenColumn[]; onColumn: (id: ColumnId) => void }) {
  const chosen = new Set(columns.map((column) => column.id));
  return (
    <Menu position="bottom-end" width={210}>
      <Menu.Target><Button variant="subtle" color="gray" leftSection={<IconColumns3 size={14} />} className={classes.columns}>Columns</Button></Menu.Target>
      <Menu.Dropdown mah="min(580px, 70vh)" style={{ overflowY: "auto" }}>
        {COLUMNS.map((column) => (
          <Menu.CheckboxItem key={column.id} checked={chosen.has(column.id)} title={column.help} onChange={() => onColumn(column.id)}>{column.label}</Menu.CheckboxItem>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}
