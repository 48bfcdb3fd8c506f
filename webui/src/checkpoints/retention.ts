import type { Retention, RetentionDecision, RetentionPlan, RetentionRequest } from "../api/schema.d.ts";
import { grouped } from "../common/format.ts";

/** What each rule of a policy keeps, in words. Without a rule nothing is deleted. */
export function rulesInWords(policy: Retention): string[] {
  const { keep_last: last, best_metric: metric, best_mode: mode, best_count: best, every_steps: every, ttl_days: days } = policy;
  return [
    ...(last ? [last === 1 ? "the newest of each run" : `the newest ${last} of each run`] : []),
    ...(metric !== "" ? [`${best === 1 ? "the best" : `the best ${best}`} of each run by ${metric} (${mode === "max" ? "highest" : "lowest"})`] : []),
    ...(every ? [`those of every ${grouped(every)} steps`] : []),
    ...(days ? [`those younger than ${days === 1 ? "a day" : `${grouped(days)} days`}`] : []),
  ];
}

/** The form of a policy: numbers are empty while a rule is off. */
export type PolicyForm = {
  keepLast: number | string; bestMetric: string; bestMode: "max" | "min"; bestCount: number | string;
  everySteps: number | string; ttlDays: number | string; kinds: ("training" | "weights")[]; automatic: boolean;
};

export function formOf(policy: Retention): PolicyForm {
  return {
    keepLast: policy.keep_last ?? "", bestMetric: policy.best_metric, bestMode: policy.best_mode, bestCount: policy.best_count,
    everySteps: policy.every_steps ?? "", ttlDays: policy.ttl_days ?? "", kinds: policy.kinds ?? [], automatic: policy.automatic,
  };
}

const whole = (value: number | string): number | null => (value === "" ? null : Number(value));

export function policyOf(form: PolicyForm): RetentionRequest {
  return {
    keep_last: whole(form.keepLast), best_metric: form.bestMetric.trim(), best_mode: form.bestMode, best_count: whole(form.bestCount) ?? 1,
    every_steps: whole(form.everySteps), ttl_days: whole(form.ttlDays), kinds: form.kinds, automatic: form.automatic,
  };
}

export const countText = (count: number): string => `${grouped(count)} ${count === 1 ? "checkpoint" : "checkpoints"}`;

/** Kept checkpoints by reason, most frequent first. A checkpoint with several reasons counts for each. */
export function keptByReason(plan: RetentionPlan): [string, number][] {
  const counts = new Map<string, number>();
  for (const reason of plan.keep.flatMap(({ keep_reasons }) => keep_reasons)) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return [...counts].sort(([one, first], [other, second]) => second - first || one.localeCompare(other));
}

/** The largest of what would be deleted. A dialog lists these and counts the others. */
export function largest(decisions: RetentionDecision[], limit: number): RetentionDecision[] {
  return [...decisions].sort((one, other) => other.bytes - one.bytes || one.id.localeCompare(other.id)).slice(0, limit);
}
