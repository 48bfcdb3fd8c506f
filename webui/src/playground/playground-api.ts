import { csrf, forgetCsrfToken } from "../api/http.ts";
import { Problem, problemFrom, unreachable } from "../api/problem.ts";
import { object, textAt } from "../common/json.ts";
import { partsOf, splitEvents, type StreamPart } from "./reply-stream.ts";

/** The endpoints of a side, below its `base_url`. They pass through the tunnel to the job and are not in the OpenAPI document. */

export type SideStatus = { ready: boolean; idle_seconds: number; released_in_seconds: number; scores: boolean };
export type ReplyScore = { score: number; parts: Record<string, number>; result: string; seconds: number };

export const sideStatus = async (baseUrl: string, signal?: AbortSignal): Promise<SideStatus> => (await (await request("GET", baseUrl, undefined, signal)).json()) as SideStatus;

export const scoreReply = async (baseUrl: string, body: unknown): Promise<ReplyScore> => (await (await request("POST", `${baseUrl}/score`, body)).json()) as ReplyScore;

/** Resets the idle timeout. */
export const keepAlive = async (baseUrl: string): Promise<SideStatus> => (await (await request("POST", `${baseUrl}/keepalive`, {})).json()) as SideStatus;

/** The reply, part by part as it arrives. Raises Problem when the side refuses, and AbortError when `signal` aborts. */
export async function chat(baseUrl: string, body: unknown, onPart: (part: StreamPart) => void, signal: AbortSignal): Promise<void> {
  const response = await request("POST", `${baseUrl}/chat/completions`, body, signal);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const split = splitEvents(rest + (value ?? "") + (done ? "\n\n" : ""));
    split.events.flatMap(partsOf).forEach(onPart);
    if (done) return;
    rest = split.rest;
  }
}

/** The tunnel requires the CSRF token on every request of a session. A stale one is fetched again, once. */
async function request(method: "GET" | "POST", url: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const response = await send(method, url, body, signal);
  if (response.ok) return response;
  const problem = sideProblem(response.status, response.statusText, await response.text());
  if (problem.code !== "csrf") throw problem;
  forgetCsrfToken();
  const again = await send(method, url, body, signal);
  if (again.ok) return again;
  throw sideProblem(again.status, again.statusText, await again.text());
}

async function send(method: "GET" | "POST", url: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  const headers = { Accept: "application/json, text/event-stream", "X-CSRFToken": await csrf(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  try {
    return await fetch(url, { method, headers, credentials: "same-origin", body: body === undefined ? undefined : JSON.stringify(body), signal });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw unreachable(error);
  }
}

const TITLES: Record<string, string> = {
  starting: "The engine is starting",
  has_ended: "This side has ended",
  node_unavailable: "The node is not reachable",
  engine_error: "The engine did not answer",
  reward_error: "The reward did not answer",
  no_score: "The reward gave no score",
};

/** An error of the control plane, or of the job in the form of OpenAI's API. */
export function sideProblem(status: number, statusText: string, text: string): Problem {
  const problem = problemFrom(status, statusText, text);
  let document: unknown = null;
  try {
    document = JSON.parse(text);
  } catch {
    return problem; // not JSON: only the status line can be shown
  }
  const error = object(object(document)?.["error"]);
  const code = error === null ? problem.code : textAt(error, "code") || problem.code;
  const title = TITLES[code] ?? (error === null ? problem.title : `The playground answered ${status}`);
  return new Problem({ status, code, title, detail: error === null ? problem.message : textAt(error, "message"), errors: problem.errors, requestId: problem.requestId });
}
