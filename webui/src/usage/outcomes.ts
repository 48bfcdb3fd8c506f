import { words } from "../common/format.ts";

/** What became of slot time, and what slots did: a label and one sentence for each code. */
const MEANINGS: Record<string, { label: string; help: string }> = {
  trained: { label: "Trained", help: "Trainers at work, and engines that generated what was trained on." },
  dropped: { label: "Dropped", help: "Engines that generated groups which were dropped, as too old or without a signal." },
  in_flight: { label: "In flight", help: "Engines that generated groups which are neither trained nor dropped yet, or were neither when the run ended." },
  lost: { label: "Lost to recovery", help: "Everything since the checkpoint from which a later attempt resumed: it was done again." },
  evaluated: { label: "Evaluated", help: "Evaluators, and the engines of evaluations, reward tests and playgrounds." },
  sync: { label: "Weight sync", help: "Weights were published, or engines paused to load them." },
  idle: { label: "Idle", help: "Engines without requests, trainers without a batch." },
  unknown: { label: "Start, end, not measured", help: "Starting, checkpoints and the end of attempts, and what no job measured." },
  generate: { label: "Generate", help: "Engines had requests." },
  train: { label: "Train", help: "Trainers prepared, scored and updated." },
  wait: { label: "Wait", help: "Engines had no request, trainers had no batch." },
  evaluate: { label: "Evaluate", help: "Evaluators had requests." },
  other: { label: "Other", help: "Start, checkpoints, the end, and what no job measured." },
};

export const OUTCOMES = ["trained", "dropped", "in_flight", "lost", "evaluated", "sync", "idle", "unknown"] as const;

export const outcomeLabel = (code: string) => MEANINGS[code]?.label ?? words(code);
export const outcomeHelp = (code: string) => MEANINGS[code]?.help ?? "";
