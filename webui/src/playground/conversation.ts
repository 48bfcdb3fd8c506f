import type { Problem } from "../api/problem.ts";

/** The conversation with one side of a playground. */

export type Score = { score: number; parts: Record<string, number>; result: string };

export type Turn = {
  id: number;
  question: string;
  /** What the reward compares the reply with. */
  answer: string;
  reply: string;
  state: "streaming" | "done" | "stopped" | "failed";
  finish: string;
  tokens: number | null;
  seconds: number | null;
  problem: Problem | null;
  score: Score | "asking" | Problem | null;
};

/** A message and how its reply is sampled. */
export type Question = { text: string; answer: string; system: string; sampling: Sampling };

export type Conversations = Readonly<Record<string, readonly Turn[]>>;

export type Sampling = { temperature: number | string; topP: number | string; maxTokens: number | string; seed: number | string };

export const DEFAULT_SAMPLING: Sampling = { temperature: 0.7, topP: 1, maxTokens: 512, seed: "" };

export type Message = { role: "system" | "user" | "assistant"; content: string };

/** The messages before and with a new question. Turns without a reply are left out, so that a retry does not repeat them. */
export function messagesOf(turns: readonly Turn[], system: string, question: string): Message[] {
  const before = turns.filter(({ reply, state }) => reply !== "" && state !== "failed");
  return [
    ...(system.trim() === "" ? [] : [{ role: "system" as const, content: system }]),
    ...before.flatMap(({ question: asked, reply }) => [{ role: "user" as const, content: asked }, { role: "assistant" as const, content: reply }]),
    { role: "user", content: question },
  ];
}

/** The body of a chat request. Empty fields are left to the engine. */
export function chatBody(messages: Message[], sampling: Sampling): Record<string, unknown> {
  const given = (name: string, value: number | string) => (value === "" ? {} : { [name]: Number(value) });
  return {
    messages, stream: true, stream_options: { include_usage: true },
    ...given("temperature", sampling.temperature), ...given("top_p", sampling.topP), ...given("max_tokens", sampling.maxTokens), ...given("seed", sampling.seed),
  };
}

export function begun(id: number, question: string, answer: string): Turn {
  return { id, question, answer, reply: "", state: "streaming", finish: "", tokens: null, seconds: null, problem: null, score: null };
}

export function withTurn(all: Conversations, run: string, turn: Turn): Conversations {
  return { ...all, [run]: [...(all[run] ?? []), turn] };
}

export function changed(all: Conversations, run: string, id: number, change: (turn: Turn) => Partial<Turn>): Conversations {
  return { ...all, [run]: (all[run] ?? []).map((turn) => (turn.id === id ? { ...turn, ...change(turn) } : turn)) };
}

export function isBusy(all: Conversations): boolean {
  return Object.values(all).some((turns) => turns.some(({ state }) => state === "streaming"));
}
