import type { Slot } from "../api/schema.d.ts";

export type DeviceRow = { key: string; device: string; model: string; memoryBytes: number; nodes: number; slots: number; inUse: number; unhealthy: number };

/** The slots of a pool by kind of device, most slots first. */
export function deviceRows(slots: readonly Slot[]): DeviceRow[] {
  const rows = new Map<string, DeviceRow & { nodeIds: Set<string> }>();
  for (const slot of slots) {
    const key = `${slot.device} ${slot.model} ${slot.memory_bytes}`;
    const row = rows.get(key) ?? { key, device: slot.device, model: slot.model, memoryBytes: slot.memory_bytes, nodes: 0, slots: 0, inUse: 0, unhealthy: 0, nodeIds: new Set<string>() };
    row.nodeIds.add(slot.node.id);
    row.nodes = row.nodeIds.size;
    row.slots += 1;
    row.inUse += Number(slot.held_by !== null);
    row.unhealthy += Number(slot.state === "unhealthy");
    rows.set(key, row);
  }
  return [...rows.values()].map(({ nodeIds: _, ...row }) => row).sort((one, other) => other.slots - one.slots);
}
