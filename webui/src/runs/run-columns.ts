/** The columns of the run list. The name is always shown; the others can be chosen. */

export type Column = {
  id: string;
  label: string;
  /** pixels */
  width: number;
  /** order that the API knows it by */
  sort?: string;
  /** the smallest value first, for text */
  ascendingFirst?: boolean;
  right?: boolean;
  help: string;
};

export const COLUMNS = [
  { id: "status", label: "Status", width: 152, sort: "status", ascendingFirst: true, help: "State of the run" },
  { id: "progress", label: "Progress", width: 148, sort: "train_step", help: "Train steps done, of those planned" },
  { id: "curve", label: "Reward curve", width: 132, help: "Mean reward by train step" },
  { id: "reward", label: "Reward", width: 86, sort: "reward", right: true, help: "Mean reward of the newest train step" },
  { id: "staleness", label: "Staleness", width: 104, sort: "staleness", right: true, help: "Mean staleness of the newest train step, of the bound η" },
  { id: "version", label: "Version", width: 78, right: true, help: "Newest policy version" },
  { id: "elapsed", label: "Elapsed", width: 92, sort: "duration", right: true, help: "Time since the start, without pauses" },
  { id: "created", label: "Created", width: 104, sort: "created", right: true, help: "When it was submitted" },
  { id: "started", label: "Started", width: 104, sort: "started", right: true, help: "When its first attempt began to work" },
  { id: "ended", label: "Ended", width: 104, sort: "ended", right: true, help: "When it reached its last state" },
  { id: "dataset", label: "Dataset", width: 150, help: "Dataset version that it trains on" },
  { id: "model", label: "Model", width: 150, help: "Base model or checkpoint that it starts from" },
  { id: "author", label: "Author", width: 110, help: "Who submitted it" },
  { id: "tags", label: "Tags", width: 160, help: "Tags of the run" },
  { id: "priority", label: "Priority", width: 84, right: true, help: "Higher goes first in the queue" },
  { id: "slots", label: "Slots", width: 68, right: true, help: "GPU slots that it needs" },
  { id: "id", label: "ID", width: 220, help: "Id of the run" },
] as const satisfies readonly Column[];

export type ColumnId = (typeof COLUMNS)[number]["id"];

export type ChosenColumn = Column & { id: ColumnId };

export const DEFAULT_COLUMNS: ColumnId[] = ["status", "progress", "curve", "reward", "staleness", "elapsed", "created"];

/** The name column: never narrower than this many pixels. */
export const NAME_WIDTH = 260;
export const CHECKBOX_WIDTH = 38;

/** The chosen columns in the order of `COLUMNS`. Ids that are none, as of an older version, are dropped. */
export function chosenColumns(stored: unknown): ChosenColumn[] {
  const ids = new Set<unknown>(Array.isArray(stored) ? stored : DEFAULT_COLUMNS);
  return COLUMNS.filter((column) => ids.has(column.id));
}

export function toggled(stored: unknown, id: ColumnId): ColumnId[] {
  const before = chosenColumns(stored).map((column) => column.id);
  return before.includes(id) ? before.filter((one) => one !== id) : COLUMNS.map((column) => column.id).filter((one) => one === id || before.includes(one));
}

/** Pixels below which the table scrolls sideways. */
export function tableWidth(columns: readonly Column[]): number {
  return CHECKBOX_WIDTH + NAME_WIDTH + columns.reduce((sum, column) => sum + column.width, 0);
}
