import type { Slot } from "../api/schema.d.ts";
import { bytes, percent } from "../common/format.ts";

type Readings = Pick<Slot, "utilization" | "memory_used_bytes" | "memory_bytes" | "celsius">;

/** "62 %, 1.2 GB of 8.0 GB, 61 °C": what was measured. */
export function readingsText({ utilization, memory_used_bytes: used, memory_bytes: whole, celsius }: Readings): string {
  const memory = used === null ? "" : whole > 0 ? `${bytes(used)} of ${bytes(whole)}` : bytes(used);
  return [utilization === null ? "" : percent(utilization, 0), memory, celsius === null ? "" : `${Math.round(celsius)} °C`].filter((part) => part !== "").join(", ");
}

/** Whose processes are on the slot, without being jobs: "eve (pid 7, 1.1 GB, python3 train.py)". */
export function othersText(processes: Slot["occupied_by"]): string {
  return processes.map(({ pid, user, command, memory_bytes }) => `${user === "" ? "a process" : user} (${[`pid ${pid}`, memory_bytes > 0 ? bytes(memory_bytes) : "", command].filter((part) => part !== "").join(", ")})`).join(", ");
}
