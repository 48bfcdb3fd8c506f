import { Button, Loader } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { Link } from "react-router";

import { Problem } from "../api/problem.ts";
import * as queries from "../api/queries.ts";
import type { PlaygroundSide } from "../api/schema.d.ts";
import { duration, number } from "../common/format.ts";
import { Empty, ProblemNotice } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useNow } from "../common/use-now.ts";
import type { Turn } from "./conversation.ts";
import classes from "./playground.module.css";
import { keepAlive, type SideStatus } from "./playground-api.ts";
import { statusOfSide } from "./playground-queries.ts";
import { hasSideEnded, releaseText, sideNotice } from "./side-state.ts";

type Props = { side: PlaygroundSide; status: SideStatus | undefined; statusError: Error | null; turns: readonly Turn[]; readOnly: string | null; onSendAgain: ((turn: Turn) => void) | null };

/** One model: its slot, how long that stays, and the conversation with it. */
export function SideColumn({ side, status, statusError, turns, readOnly, onSendAgain }: Props) {
  const notice = sideNotice(side);
  const path = side.model.kind === "checkpoint" ? `/checkpoints/${side.model.id}` : "/models";
  return (
    <Panel
      className={classes.side} title={<Link to={path}>{side.model.name}</Link>}
      aside={<StatusBadge status={side.ready && !hasSideEnded(side) ? "READY" : side.status} />}
    >
      <SlotLine side={side} status={status} readOnly={readOnly} />
      {side.ready && !hasSideEnded(side) && <ProblemNotice error={statusError} />}
      {notice !== null && (
        <div className={classes.notice} data-tone={notice.tone} role="status" data-testid="side-notice">
          {notice.tone === "wait" && <Loader size="xs" />}
          <span><b>{notice.title}</b> {notice.text}{notice.title === "Failed" && <> <Link to={`/runs/${side.run}?tab=logs`}>Its log</Link></>}</span>
        </div>
      )}
      {turns.length === 0 ? notice === null && <Empty title="Ready">Write the first message below.</Empty> : <Turns turns={turns} onSendAgain={onSendAgain} />}
    </Panel>
  );
}

function SlotLine({ side, status, readOnly }: Pick<Props, "side" | "status" | "readOnly">) {
  const isPlaced = side.status !== "QUEUED";
  const jobs = useQuery({ ...queries.runJobs(side.run), enabled: isPlaced }).data?.data ?? [];
  const slots = jobs.filter(({ slots: held }) => held.length > 0).map((job) => `${job.node.name} ${job.slots.join(", ")}`);
  const received = useRef({ status, at: Date.now() });
  if (received.current.status !== status) received.current = { status, at: Date.now() };
  const now = useNow(1_000);
  const left = status === undefined ? null : status.released_in_seconds - Math.max(0, now - received.current.at) / 1000;
  const client = useQueryClient();
  const keep = useMutation({ mutationFn: () => keepAlive(side.base_url), onSuccess: (fresh) => client.setQueryData(statusOfSide(side.base_url).queryKey, fresh) });
  const ended = hasSideEnded(side);
  return (
    <div className={classes.slot} data-testid="slot">
      <span>{slots.length > 0 ? `${ended ? "Was on" : "On"} ${slots.join("; ")}` : ended ? "Never had a slot" : "No slot yet"}</span>
      {!ended && side.ready && status !== undefined && (
        <>
          <span className="tabular">{releaseText(left)}</span>
          {readOnly === null && <Button variant="subtle" size="compact-xs" loading={keep.isPending} onClick={() => keep.mutate()}>Keep it</Button>}
        </>
      )}
      <Link to={`/runs/${side.run}`}>Its run</Link>
    </div>
  );
}

/** The newest part stays in view while a reply arrives. */
function Turns({ turns, onSendAgain }: Pick<Props, "turns" | "onSendAgain">) {
  const end = useRef<HTMLDivElement>(null);
  const last = turns.at(-1);
  useEffect(() => { end.current?.scrollTo({ top: end.current.scrollHeight }); }, [turns.length, last?.reply, last?.score]);
  return (
    <div className={classes.turns} ref={end} tabIndex={0} role="log" aria-label="Conversation" data-testid="turns">
      {turns.map((turn) => <TurnView key={turn.id} turn={turn} onSendAgain={turn === last ? onSendAgain : null} />)}
    </div>
  );
}

function TurnView({ turn, onSendAgain }: { turn: Turn } & Pick<Props, "onSendAgain">) {
  const facts = [
    ...(turn.state === "stopped" ? ["stopped by you"] : []),
    ...(turn.finish === "length" ? ["cut at the token limit"] : []),
    ...(turn.tokens !== null ? [`${turn.tokens} tokens`] : []),
    ...(turn.seconds !== null ? [duration(turn.seconds)] : []),
  ];
  return (
    <article className={classes.turn} data-state={turn.state}>
      <p className={classes.question}>{turn.question}</p>
      {turn.reply !== "" && <p className={classes.reply}>{turn.reply}</p>}
      {turn.state === "streaming" && turn.reply === "" && <Loader size="xs" type="dots" aria-label="The model begins" />}
      {turn.problem !== null && <ProblemNotice error={turn.problem} retry={onSendAgain === null ? undefined : () => onSendAgain(turn)} />}
      <div className={classes.facts}>
        {facts.length > 0 && <span>{facts.join(" · ")}</span>}
        <ScoreView turn={turn} />
      </div>
    </article>
  );
}

function ScoreView({ turn: { score, answer } }: { turn: Turn }) {
  if (score === null) return null;
  if (score === "asking") return <span>scoring</span>;
  if (score instanceof Problem) return <span className={classes.noScore} title={score.message}>no score: {score.message}</span>;
  const parts = Object.entries(score.parts).map(([name, value]) => `${name} ${number(value)}`).join(", ");
  return <span className={classes.score} title={`Expected answer: ${answer || "none"}${parts === "" ? "" : `\n${parts}`}`} data-testid="score">reward <b>{number(score.score)}</b>{score.result !== "" && ` (${score.result.replaceAll("_", " ")})`}</span>;
}
