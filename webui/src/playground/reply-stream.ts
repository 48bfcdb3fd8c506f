import { at, numberAt, object, textAt } from "../common/json.ts";

/** The stream of a chat completion: server-sent events, as OpenAI's API sends them. */

export type StreamPart = { kind: "text"; text: string } | { kind: "usage"; tokens: number } | { kind: "finish"; reason: string } | { kind: "error"; message: string };

/** The complete events of the text so far, and what is left of an incomplete one. */
export function splitEvents(text: string): { events: string[]; rest: string } {
  const parts = text.replaceAll("\r\n", "\n").split("\n\n");
  const rest = parts.pop() ?? "";
  return { events: parts.filter((part) => part.trim() !== ""), rest };
}

/** What one event adds to the reply. Events without content, such as the role at the beginning, add nothing. */
export function partsOf(event: string): StreamPart[] {
  const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice("data:".length).trim()).join("\n");
  if (data === "" || data === "[DONE]") return [];
  let document: unknown;
  try {
    document = JSON.parse(data);
  } catch {
    return [{ kind: "error", message: `The engine sent what is not JSON: ${data.slice(0, 80)}` }];
  }
  const error = at(document, "error");
  if (error !== undefined && error !== null) return [{ kind: "error", message: textAt(document, "error", "message") || "The reply broke off." }];
  const choices = at(document, "choices");
  const choice = object(Array.isArray(choices) ? choices[0] : null);
  const text = textAt(choice, "delta", "content");
  const reason = textAt(choice, "finish_reason");
  const tokens = numberAt(document, "usage", "completion_tokens");
  return [
    ...(text === "" ? [] : [{ kind: "text", text } as const]),
    ...(reason === "" ? [] : [{ kind: "finish", reason } as const]),
    ...(tokens === null ? [] : [{ kind: "usage", tokens } as const]),
  ];
}
