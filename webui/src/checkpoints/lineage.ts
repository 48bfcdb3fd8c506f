import type { LineageEdge, LineageNode } from "../api/schema.d.ts";

/** The drawing of a lineage graph: inputs at the left, results at the right, one column per step between them. */

export const NODE_WIDTH = 180;
export const NODE_HEIGHT = 46;
const GAP_X = 36;
const GAP_Y = 12;
/** A column with more nodes than this shows the first ones and counts the others. */
export const MAX_IN_COLUMN = 8;

export type PlacedNode = LineageNode & { x: number; y: number };
export type PlacedEdge = LineageEdge & { path: string };
export type Placed = { nodes: PlacedNode[]; edges: PlacedEdge[]; hidden: { x: number; y: number; count: number }[]; width: number; height: number };

const KIND_ORDER = ["base_model", "dataset_version", "function_version", "checkpoint", "run"];

/** Places every node one column right of its last input. `focus` is never among the hidden ones. */
export function layOut(nodes: LineageNode[], edges: LineageEdge[], focus: string): Placed {
  const columns = columnsOf(nodes, edges);
  const shown: LineageNode[][] = [];
  const hidden: Placed["hidden"] = [];
  columns.forEach((column, index) => {
    const first = column.length > MAX_IN_COLUMN ? withFocusFirst(column, focus).slice(0, MAX_IN_COLUMN) : column;
    shown.push(first);
    if (column.length > first.length) hidden.push({ x: index * (NODE_WIDTH + GAP_X), y: 0, count: column.length - first.length });
  });
  const rows = Math.max(0, ...shown.map((column, index) => column.length + (hidden.some(({ x }) => x === index * (NODE_WIDTH + GAP_X)) ? 1 : 0)));
  const height = Math.max(0, rows * (NODE_HEIGHT + GAP_Y) - GAP_Y);
  const placed = shown.flatMap((column, index) => {
    const x = index * (NODE_WIDTH + GAP_X);
    const extra = hidden.find((one) => one.x === x);
    const used = (column.length + (extra === undefined ? 0 : 1)) * (NODE_HEIGHT + GAP_Y) - GAP_Y;
    const top = (height - used) / 2;
    if (extra !== undefined) extra.y = top + column.length * (NODE_HEIGHT + GAP_Y);
    return column.map((node, row) => ({ ...node, x, y: top + row * (NODE_HEIGHT + GAP_Y) }));
  });
  const at = new Map(placed.map((node) => [node.id, node]));
  return {
    nodes: placed,
    edges: edges.flatMap((edge) => {
      const [from, to] = [at.get(edge.from), at.get(edge.to)];
      return from === undefined || to === undefined ? [] : [{ ...edge, path: curve(from, to) }];
    }),
    hidden,
    width: Math.max(0, columns.length * (NODE_WIDTH + GAP_X) - GAP_X),
    height,
  };
}

/** The column of a node is the length of the longest path to it. An edge that closes a circle does not count. */
function columnsOf(nodes: LineageNode[], edges: LineageEdge[]): LineageNode[][] {
  const inputs = new Map<string, string[]>();
  const known = new Set(nodes.map(({ id }) => id));
  for (const { from, to } of edges) if (known.has(from) && known.has(to)) inputs.set(to, [...(inputs.get(to) ?? []), from]);
  const depths = new Map<string, number>();
  const depthOf = (id: string, path: Set<string>): number => {
    const found = depths.get(id);
    if (found !== undefined) return found;
    const before = (inputs.get(id) ?? []).filter((input) => !path.has(input));
    const depth = Math.max(-1, ...before.map((input) => depthOf(input, new Set([...path, id])))) + 1;
    depths.set(id, depth);
    return depth;
  };
  const columns: LineageNode[][] = [];
  for (const node of nodes) (columns[nearest(node, depthOf(node.id, new Set()), edges, (id) => depthOf(id, new Set()))] ??= []).push(node);
  return Array.from(columns, (column) => sorted(column ?? []));
}

/** What has no input itself stands right before its first user, not at the far left. */
function nearest(node: LineageNode, depth: number, edges: LineageEdge[], depthOf: (id: string) => number): number {
  if (depth > 0) return depth;
  const users = edges.filter(({ from }) => from === node.id).map(({ to }) => depthOf(to));
  return users.length === 0 ? depth : Math.max(0, Math.min(...users) - 1);
}

function sorted(column: LineageNode[]): LineageNode[] {
  return column.sort((one, other) => KIND_ORDER.indexOf(one.kind) - KIND_ORDER.indexOf(other.kind) || one.name.localeCompare(other.name, "en", { numeric: true }) || one.id.localeCompare(other.id));
}

function withFocusFirst(column: LineageNode[], focus: string): LineageNode[] {
  return [...column.filter(({ id }) => id === focus), ...column.filter(({ id }) => id !== focus)];
}

function curve(from: PlacedNode, to: PlacedNode): string {
  const [x1, y1, x2, y2] = [from.x + NODE_WIDTH, from.y + NODE_HEIGHT / 2, to.x, to.y + NODE_HEIGHT / 2];
  const bend = Math.max(GAP_X / 2, (x2 - x1) / 2);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

const KINDS: Record<string, string> = { checkpoint: "checkpoint", run: "run", dataset_version: "dataset version", base_model: "base model", function_version: "function version" };

export const kindLabel = (kind: string): string => KINDS[kind] ?? kind.replaceAll("_", " ");

/** The page of a node. Null where there is none. */
export function nodePath({ id, kind }: Pick<LineageNode, "id" | "kind">): string | null {
  if (kind === "checkpoint") return `/checkpoints/${id}`;
  if (kind === "run") return `/runs/${id}`;
  if (kind === "dataset_version") return `/datasets?version=${id}`;
  return kind === "base_model" ? "/models" : null;
}

const EDGES: Record<string, string> = { left: "saved", resumed: "resumed from it", starts_from: "starts from it", trained_on: "trained on it" };

/** What a line means, for its tooltip and for the list that screen readers get. */
export const edgeLabel = (kind: string): string => EDGES[kind] ?? `is its ${kind.replaceAll("_", " ")}`;
