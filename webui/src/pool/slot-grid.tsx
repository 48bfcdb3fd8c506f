import { Button, TextInput } from "@mantine/core";
import { useState } from "react";

import type { Pool, Reservation, Slot } from "../api/schema.d.ts";
import { grouped } from "../common/format.ts";
import { StatusBadge } from "../common/status.tsx";
import classes from "./pool-page.module.css";
import { SlotTile } from "./slot-tile.tsx";

const MOST_TILES = 64; // of a pool whose nodes are all open; in a larger one a node opens by a click

type Props = { pool: Pick<Pool, "nodes" | "slots">; reserved: ReadonlyMap<string, Reservation> };

/** The slots as tiles, grouped by node. In a large pool each node is one line until it is opened. */
export function SlotGrid({ pool, reserved }: Props) {
  const [search, setSearch] = useState("");
  const isLarge = pool.slots.length > MOST_TILES;
  const wanted = search.trim().toLowerCase();
  const isWanted = (slots: Slot[], name: string) => [name, ...slots.flatMap(({ held_by, model }) => [model, held_by?.run_name ?? ""])].some((text) => text.toLowerCase().includes(wanted));
  const byNode = new Map<string, Slot[]>();
  for (const slot of pool.slots) byNode.set(slot.node.id, [...(byNode.get(slot.node.id) ?? []), slot]);
  const nodes = pool.nodes.map((node) => ({ node, slots: byNode.get(node.id) ?? [] })).filter(({ node, slots }) => wanted === "" || isWanted(slots, node.name));
  return (
    <>
      {isLarge && <TextInput type="search" aria-label="Search nodes, models and runs" placeholder="Search nodes, models and runs" w={280} maw="100%" mb={8} value={search} onChange={(event) => setSearch(event.currentTarget.value)} />}
      {nodes.length === 0 && <p className={classes.none}>No node, model or run of a slot contains “{search.trim()}”.</p>}
      {nodes.map(({ node, slots }) => (isLarge ? <NodeLine key={node.id} node={node} slots={slots} reserved={reserved} /> : (
        <div key={node.id} className={classes.row}>
          <div className={classes.node}><strong>{node.name}</strong><StatusBadge status={node.status} /></div>
          <Tiles slots={slots} reserved={reserved} />
        </div>
      )))}
    </>
  );
}

type NodeProps = { node: Pool["nodes"][number]; slots: Slot[]; reserved: Props["reserved"] };

function NodeLine({ node, slots, reserved }: NodeProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <div className={classes.line}>
      <Button variant="subtle" color="gray" size="compact-sm" aria-expanded={isOpen} aria-label={`${isOpen ? "Close" : "Open"} the slots of ${node.name}`} onClick={() => setOpen(!isOpen)}>{isOpen ? "Close" : "Open"}</Button>
      <strong>{node.name}</strong>
      <StatusBadge status={node.status} />
      <span className={classes.cells} aria-hidden>{slots.map((slot) => <i key={slot.id} data-state={slot.state} title={`${slot.name}: ${slot.held_by?.run_name ?? slot.state}`} />)}</span>
      <span className={`${classes.counts} tabular`}>{countsText(slots)}</span>
      {isOpen && <div className={classes.opened}><Tiles slots={slots} reserved={reserved} /></div>}
    </div>
  );
}

function Tiles({ slots, reserved }: Pick<NodeProps, "slots" | "reserved">) {
  return <div className={classes.tiles}>{slots.map((slot) => <SlotTile key={slot.id} slot={slot} reservation={reserved.get(`${slot.node.id}/${slot.name}`)} />)}</div>;
}

/** "6 held, 2 free" */
export function countsText(slots: readonly Pick<Slot, "state">[]): string {
  const counts = new Map<string, number>();
  for (const { state } of slots) counts.set(state, (counts.get(state) ?? 0) + 1);
  return slots.length === 0 ? "no slots" : [...counts].map(([state, count]) => `${grouped(count)} ${state}`).join(", ");
}
