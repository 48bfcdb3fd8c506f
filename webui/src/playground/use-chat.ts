import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";

import { Problem } from "../api/problem.ts";
import type { PlaygroundSide } from "../api/schema.d.ts";
import { begun, changed, chatBody, isBusy, messagesOf, withTurn, type Conversations, type Message, type Question, type Turn } from "./conversation.ts";
import { chat, scoreReply } from "./playground-api.ts";
import { PLAYGROUNDS } from "./playground-queries.ts";

type Side = Pick<PlaygroundSide, "run" | "base_url">;

/** The conversations of a playground's sides, and what sends to them. They live as long as the page. */
export function useChat() {
  const [conversations, setConversations] = useState<Conversations>({});
  const newest = useRef(conversations);
  newest.current = conversations;
  const nextId = useRef(0);
  const asked = useRef(new Map<number, Question>()); // by turn
  const client = useQueryClient();
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);

  const sendTo = useCallback(async (side: Side, question: Question, scores: boolean) => {
    const id = nextId.current++;
    asked.current.set(id, question);
    const change = (make: (turn: Turn) => Partial<Turn>) => setConversations((old) => changed(old, side.run, id, make));
    const messages = messagesOf(newest.current[side.run] ?? [], question.system, question.text);
    setConversations((old) => withTurn(old, side.run, begun(id, question.text, question.answer)));
    const began = performance.now();
    let reply = "";
    let broken: string | null = null;
    try {
      await chat(side.base_url, chatBody(messages, question.sampling), (part) => {
        if (part.kind === "text") { reply += part.text; change(() => ({ reply })); }
        if (part.kind === "finish") change(() => ({ finish: part.reason }));
        if (part.kind === "usage") change(() => ({ tokens: part.tokens }));
        if (part.kind === "error") broken = part.message;
      }, abort.current.signal);
      if (broken !== null) throw new Problem({ status: 0, code: "broken", title: "The reply broke off", detail: broken });
      change(() => ({ state: "done", seconds: (performance.now() - began) / 1000 }));
      if (scores) await score(side, messages, reply, question.answer, change);
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return change(() => ({ state: "stopped" }));
      if (!(error instanceof Problem)) throw error;
      change(() => ({ state: "failed", problem: error }));
      void client.invalidateQueries({ queryKey: PLAYGROUNDS }); // the side may have ended
    }
    void client.invalidateQueries({ queryKey: [...PLAYGROUNDS, "side"] });
  }, [client]);

  /** Asks what a failed turn asked. */
  const sendAgain = useCallback((side: Side, turn: Turn, scores: boolean) => {
    const question = asked.current.get(turn.id);
    if (question !== undefined) void sendTo(side, question, scores);
  }, [sendTo]);

  const stop = useCallback(() => {
    abort.current.abort();
    abort.current = new AbortController();
  }, []);
  return { conversations, sendTo, sendAgain, stop, busy: isBusy(conversations) };
}

async function score(side: Side, messages: Message[], completion: string, answer: string, change: (make: (turn: Turn) => Partial<Turn>) => void): Promise<void> {
  change(() => ({ score: "asking" }));
  try {
    const given = await scoreReply(side.base_url, { messages, completion, answer });
    change(() => ({ score: given }));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    change(() => ({ score: error }));
  }
}
