import { counts, numberAt, sum, type Json } from "../common/json.ts";

export type FunnelStage = { name: string; count: number; help: string; lost: { label: string; count: number }[] };

/** How many of the sampled groups came how far, and where the others are. The stages are cumulative. */
export function funnelOf(ledger: Json): FunnelStage[] | null {
  const [sampled, waiting, running, buffered, inTraining, trained] = ["drawn", "waiting", "running", "buffered", "taken", "trained"].map((name) => numberAt(ledger, name));
  if (sampled === null || sampled === undefined || sampled === 0) return null;
  const dropped = counts(ledger["dropped"] ?? ledger["dropped_by_reason"]);
  const kept = sampled - sum(dropped);
  const finished = (buffered ?? 0) + (inTraining ?? 0) + (trained ?? 0);
  return [
    { name: "Sampled", count: sampled, help: "Groups whose prompt was sampled from the dataset", lost: [] },
    { name: "Not dropped", count: kept, help: "Groups that were trained or still can be", lost: dropped.map(([reason, count]) => ({ label: `dropped: ${reason.replaceAll("_", " ")}`, count })) },
    { name: "Generated and scored", count: finished, help: "Groups of which every trajectory has a reward", lost: [{ label: "running", count: running ?? 0 }, { label: "waiting for a worker", count: waiting ?? 0 }] },
    { name: "Taken by the trainer", count: (inTraining ?? 0) + (trained ?? 0), help: "Groups of trained batches and of the current one", lost: [{ label: "in the buffer", count: buffered ?? 0 }] },
    { name: "Trained", count: trained ?? 0, help: "Groups that changed the weights", lost: [{ label: "in training", count: inTraining ?? 0 }] },
  ].map((stage) => ({ ...stage, lost: stage.lost.filter(({ count }) => count > 0) }));
}
