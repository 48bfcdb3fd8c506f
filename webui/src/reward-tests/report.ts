import { at, numberAt, object, textAt, type Json } from "../common/json.ts";
import { duration, number, percent } from "../common/format.ts";

/** The report of a reward test (gpu_agents/reward_test/report.py), read with its meaning. */

export type Level = "red" | "amber" | "note";
export type Finding = { level: Level; code: string; message: string; advice: string };

const ADVICE: Record<string, string> = {
  exceptions: "A call without a score drops its whole group. Catch what the policy can write, such as text that is no number, and return 0 for it.",
  not_deterministic: "The same completion must get the same score, or the policy learns noise. Remove clocks, random numbers and orders of sets.",
  constant: "Nothing can be learned from a constant. Check the format that the reward looks for, and start from a checkpoint that solves some rows.",
  zero_variance: "Choose rows that the policy solves sometimes, sample more completions per row, or warm the model up first.",
  slow: "A call over the timeout counts as an error. Make the reward faster, or raise reward.timeout_seconds.",
  bare_answer_is_not_enough: "This is fine if the prompt asks for the format. Read one prompt in the dataset's preview to be sure.",
};

const PROBE_ADVICE = "A policy finds this within a few hundred steps. Make the reward look for one answer in a fixed place, and return 0 for this text.";

export function findings(report: Json | null): Finding[] {
  const reasons = at(report, "reasons");
  if (!Array.isArray(reasons)) return [];
  return reasons.map((reason: unknown) => {
    const code = textAt(reason, "code");
    return {
      level: levelOf(textAt(reason, "level")), code, message: textAt(reason, "message"),
      advice: ADVICE[code] ?? (code.startsWith("probe_") ? PROBE_ADVICE : ""),
    };
  });
}

function levelOf(text: string): Level {
  return text === "red" || text === "amber" ? text : "note";
}

export type ProbeName = "empty" | "repeated" | "echo" | "leaked_answer" | "all_answers" | "longest";

/** The probes, each with the completion that it tries and what a success means. */
export const PROBES: Record<ProbeName, { label: string; tries: string; means: string }> = {
  empty: { label: "Empty", tries: "a completion without any text", means: "The policy is paid for writing nothing." },
  repeated: { label: "Repeated", tries: "“the answer is”, 64 times", means: "The policy is paid for repeating a phrase." },
  echo: { label: "Echo", tries: "the prompt itself", means: "The policy is paid for copying the question, often because the prompt shows the expected format." },
  all_answers: { label: "All answers", tries: "every answer of these rows in one line", means: "The policy is paid for listing guesses instead of choosing one." },
  longest: { label: "Longest", tries: "4,000 characters that lead nowhere", means: "The policy is paid for length." },
  leaked_answer: { label: "Bare answer (control)", tries: "the answer alone", means: "This one should count as right, unless the reward also requires a format." },
};

export const PROBE_NAMES = Object.keys(PROBES) as ProbeName[];

export type ProbeResult = { name: ProbeName; tried: number; mean: number | null; max: number | null; successShare: number; example: string | null; outcome: "safe" | "gamed" | "control"; says: string };

/** One row per probe of the report, in the order of PROBES. */
export function probeResults(report: Json | null): ProbeResult[] {
  const gamed = new Map(findings(report).map((finding) => [finding.code, finding]));
  return PROBE_NAMES.flatMap((name): ProbeResult[] => {
    const result = object(at(report, "probes", name));
    if (result === null) return [];
    const example = object(result["example"]);
    const found = gamed.get(`probe_${name}`);
    return [{
      name, tried: numberAt(result, "tried") ?? 0, mean: numberAt(result, "mean"), max: numberAt(result, "max"),
      successShare: numberAt(result, "success_frac") ?? 0, example: example === null ? null : textAt(example, "completion"),
      outcome: name === "leaked_answer" ? "control" : found === undefined ? "safe" : "gamed",
      says: found === undefined ? (name === "leaked_answer" ? PROBES[name].means : "The reward is not fooled.") : PROBES[name].means,
    }];
  });
}

export type Figure = { label: string; value: string; detail: string; help: string };

/** The figures at the top of the report. A dash stands for what was not measured. */
export function figures(report: Json | null): Figure[] {
  const [errors, share] = [numberAt(report, "exceptions", "count"), numberAt(report, "exceptions", "share")];
  const [differing, checked] = [numberAt(report, "determinism", "differing"), numberAt(report, "determinism", "checked")];
  const span = object(at(report, "range"));
  const latency = object(at(report, "latency_seconds"));
  const flat = numberAt(report, "zero_variance_frac");
  return [
    { label: "Exceptions", value: errors === null ? "–" : `${errors}`, detail: share === null ? "" : `${percent(share)} of ${numberAt(report, "calls") ?? 0} calls`, help: "Calls that gave no score: exceptions, timeouts, and results that are not numbers." },
    { label: "Determinism", value: differing === null ? "–" : differing === 0 ? "Same twice" : `${differing} differ`, detail: checked === null ? "" : `of ${checked} completions`, help: "Each completion is scored twice. Two scores must be equal." },
    { label: "Latency, p95", value: duration(numberAt(latency, "p95")), detail: latency === null ? "" : `median ${duration(numberAt(latency, "p50"))}, longest ${duration(numberAt(latency, "max"))}`, help: "Time of one call in the node's reward service." },
    { label: "Range", value: span === null ? "–" : `${number(numberAt(span, "min"))} to ${number(numberAt(span, "max"))}`, detail: span === null ? "" : `${numberAt(span, "distinct") ?? 0} different scores`, help: "Smallest and largest score of all completions, probes included." },
    { label: "Mean of samples", value: number(numberAt(span, "model_mean")), detail: span === null ? "" : numberAt(span, "model_mean") === null ? "no samples, probes only" : `of all completions ${number(numberAt(span, "mean"))}`, help: "Mean score of sampled and stored completions, without the probes." },
    { label: "Zero-variance groups", value: percent(flat, 0), detail: flat === null ? "needs 2 or more samples per row" : "give no gradient", help: "Groups in which all completions of one prompt got the same score. Under group normalization they teach nothing." },
  ];
}

export type Example = { row: number; source: string; completion: string; detail: string };

/** Completions without a score, and completions with two scores. */
export function examples(report: Json | null, of: "exceptions" | "determinism"): Example[] {
  const list = at(report, of, "examples");
  if (!Array.isArray(list)) return [];
  return list.map((entry: unknown) => {
    const scores = at(entry, "scores");
    return {
      row: numberAt(entry, "row") ?? 0, source: textAt(entry, "source"), completion: textAt(entry, "completion"),
      detail: of === "exceptions" ? textAt(entry, "error") : `scored ${Array.isArray(scores) ? scores.map((score) => (score === null ? "nothing" : String(score))).join(", then ") : ""}`,
    };
  });
}
