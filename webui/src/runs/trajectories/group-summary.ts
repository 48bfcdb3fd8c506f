import type { Trajectory } from "../../api/schema.d.ts";
import { words } from "../../common/format.ts";

type Member = Pick<Trajectory, "member" | "reward" | "sample_reasons">;

/** Whether the sample has every trajectory of its group, so that their mean is that of the group. */
export function isWholeGroup(members: Member[]): boolean {
  return members.length > 0 && members.every((member) => member.sample_reasons.includes("group"));
}

export function meanReward(members: Member[]): number {
  return members.reduce((sum, member) => sum + member.reward, 0) / members.length;
}

/** Why a trajectory was sampled, besides that its whole group was. */
export function extremesText({ sample_reasons }: Pick<Member, "sample_reasons">): string {
  return sample_reasons.filter((reason) => reason !== "group").map((reason) => words(reason).toLowerCase()).join(", ");
}

/** "2 of 8 sampled: lowest reward, widest span", or that the group is complete. */
export function sampledText(members: Member[], groupSize: number | null): string {
  const count = members.length;
  if (isWholeGroup(members)) return count === 1 ? "the only one of its group" : `all ${count} of the group`;
  const reasons = [...new Set(members.flatMap((member) => member.sample_reasons))].filter((reason) => reason !== "group").map((reason) => words(reason).toLowerCase());
  const of = groupSize === null || groupSize < count ? "" : ` of ${groupSize}`;
  return `${count}${of} sampled${reasons.length === 0 ? "" : `: ${reasons.join(", ")}`}`;
}
