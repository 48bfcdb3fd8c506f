import { IconBox, IconDatabase, IconFunction, IconRoute, IconStack2 } from "@tabler/icons-react";
import { useLayoutEffect, useMemo, useRef } from "react";
import { Link } from "react-router";

import type { Lineage } from "../api/schema.d.ts";
import { edgeLabel, kindLabel, layOut, NODE_HEIGHT, NODE_WIDTH, nodePath, type PlacedNode } from "./lineage.ts";
import classes from "./lineage-graph.module.css";

const ICONS: Record<string, typeof IconBox> = { base_model: IconBox, dataset_version: IconDatabase, function_version: IconFunction, run: IconRoute, checkpoint: IconStack2 };
const EDGE_PADDING = 6; // keeps the focus ring of the outermost nodes inside the scrolled area

/** What the checkpoint was made from, and what was made from it. */
export function LineageGraph({ lineage, focus }: { lineage: Lineage; focus: string }) {
  const placed = useMemo(() => layOut(lineage.nodes, lineage.edges, focus), [lineage, focus]);
  const scroller = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => centerOn(scroller.current, placed.nodes.find(({ id }) => id === focus)), [placed, focus]);
  const names = new Map(lineage.nodes.map(({ id, name }) => [id, name]));
  return (
    <div ref={scroller} className={classes.scroller} tabIndex={0} role="group" aria-label="Lineage graph" data-testid="lineage">
      <div className={classes.graph} style={{ width: placed.width, height: placed.height, margin: EDGE_PADDING }}>
        <svg width={placed.width} height={placed.height} aria-hidden>
          {placed.edges.map(({ from, to, kind, path }) => (
            <path key={`${from} ${to} ${kind}`} d={path} className={classes.edge} data-near={from === focus || to === focus}><title>{`${names.get(from)} → ${names.get(to)}: ${edgeLabel(kind)}`}</title></path>
          ))}
        </svg>
        {placed.nodes.map((node) => <GraphNode key={node.id} node={node} isFocus={node.id === focus} />)}
        {placed.hidden.map(({ x, y, count }) => <div key={x} className={classes.more} style={{ left: x, top: y, width: NODE_WIDTH, height: NODE_HEIGHT }}>and {count} more</div>)}
      </div>
      {lineage.truncated && <p className={classes.note}>The lineage has more than 200 nodes; the rest is not shown.</p>}
    </div>
  );
}

/** Long graphs scroll in both directions, so they begin where the checkpoint is. */
function centerOn(scroller: HTMLDivElement | null, node: PlacedNode | undefined): void {
  if (scroller === null || node === undefined) return;
  scroller.scrollTo({ left: node.x + NODE_WIDTH / 2 - scroller.clientWidth / 2, top: node.y + NODE_HEIGHT / 2 - scroller.clientHeight / 2 });
}

function GraphNode({ node, isFocus }: { node: PlacedNode; isFocus: boolean }) {
  const Icon = ICONS[node.kind] ?? IconBox;
  const path = isFocus ? null : nodePath(node);
  const style = { left: node.x, top: node.y, width: NODE_WIDTH, height: NODE_HEIGHT };
  const text = (
    <>
      <Icon size={16} stroke={1.8} aria-hidden />
      <span><b>{node.name}</b><small>{kindLabel(node.kind)}{isFocus ? ", this one" : ""}</small></span>
    </>
  );
  return path === null
    ? <div className={classes.node} style={style} title={node.name} data-kind={node.kind} data-focus={isFocus}>{text}</div>
    : <Link className={classes.node} style={style} to={path} title={node.name} data-kind={node.kind}>{text}</Link>;
}
