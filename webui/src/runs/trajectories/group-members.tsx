import { useEffect, useRef, type KeyboardEvent } from "react";

import type { Trajectory } from "../../api/schema.d.ts";
import { grouped, words } from "../../common/format.ts";
import classes from "./group-members.module.css";
import { extremesText, isWholeGroup, meanReward } from "./group-summary.ts";
import { RewardMark } from "./reward-mark.tsx";
import { versionsText } from "./version-spans.ts";

const MOVES: Record<string, number> = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };

/** The sampled members of a group. Arrow keys open the neighbor. */
export function GroupMembers({ members, shown, onOpen }: { members: Trajectory[]; shown: number; onOpen: (id: number) => void }) {
  const list = useRef<HTMLDivElement>(null);
  const hadFocus = useRef(false);
  const best = Math.max(...members.map((member) => member.reward));
  const mean = isWholeGroup(members) && members.length > 1 ? meanReward(members) : null;
  const current = members.findIndex((member) => member.id === shown);
  useEffect(() => {
    if (hadFocus.current) list.current?.querySelector<HTMLElement>("[aria-checked=true]")?.focus();
    hadFocus.current = false;
  }, [shown]);
  const onKeyDown = (event: KeyboardEvent) => {
    const move = MOVES[event.key];
    if (move === undefined || members.length === 0) return;
    event.preventDefault();
    hadFocus.current = true;
    onOpen(members[(current + move + members.length) % members.length]!.id);
  };
  return (
    <div ref={list} role="radiogroup" aria-label="Members of the group" className={classes.members} onKeyDown={onKeyDown}>
      {members.map((member, index) => (
        <button key={member.id} type="button" role="radio" aria-checked={index === current} tabIndex={index === Math.max(0, current) ? 0 : -1} className={classes.member} onClick={() => onOpen(member.id)} data-testid="member">
          <span className="tabular">{member.member === null ? "" : `#${member.member}`}</span>
          <span className={classes.reward}>
            <RewardMark reward={member.reward} best={member.reward === best && members.some((other) => other.reward < best)} />
            {mean !== null && <small className="tabular" title="Reward less the mean of the group">{signed(member.reward - mean)}</small>}
          </span>
          <span className={classes.text}>{member.completion.trim().replaceAll(/\s+/g, " ")}</span>
          <span className={classes.about}>{[extremesText(member), member.finish_reason === "stop" ? "" : words(member.finish_reason).toLowerCase(), versionsText(member), member.tokens === null ? "" : `${grouped(member.tokens)} tokens`].filter(Boolean).join(" · ")}</span>
        </button>
      ))}
    </div>
  );
}

function signed(value: number): string {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
}
