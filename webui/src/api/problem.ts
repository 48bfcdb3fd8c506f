/** One invalid field of a request. `pointer` is a JSON pointer to it. */
export type FieldProblem = { pointer: string; code: string; message: string };

/** An error response of the API (RFC 9457), or a request without a response (status 0). */
export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly errors: FieldProblem[];
  readonly requestId: string;

  constructor(fields: { status: number; code: string; title: string; detail: string; errors?: FieldProblem[]; requestId?: string }) {
    super(fields.detail || fields.title);
    this.name = "Problem";
    this.status = fields.status;
    this.code = fields.code;
    this.title = fields.title;
    this.errors = fields.errors ?? [];
    this.requestId = fields.requestId ?? "";
  }
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function fieldProblems(value: unknown): FieldProblem[] {
  if (!Array.isArray(value)) return [];
  return value
    .filter((entry): entry is Record<string, unknown> => typeof entry === "object" && entry !== null)
    .map((entry) => ({ pointer: text(entry["pointer"]), code: text(entry["code"]), message: text(entry["message"]) }));
}

/** Parse an error response. A body that is not JSON, such as a proxy's HTML page, becomes a message with the status. */
export function problemFrom(status: number, statusText: string, body: string): Problem {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    parsed = null; // Not JSON: only the status line can be shown.
  }
  if (typeof parsed !== "object" || parsed === null) {
    return new Problem({ status, code: "unreadable", title: `${status} ${statusText}`.trim(), detail: `The server returned ${status} ${statusText}.` });
  }
  const fields = parsed as Record<string, unknown>;
  return new Problem({
    status,
    code: text(fields["code"]) || String(status),
    title: text(fields["title"]) || statusText || `Error ${status}`,
    detail: text(fields["detail"]),
    errors: fieldProblems(fields["errors"]),
    requestId: text(fields["request_id"]),
  });
}

export function unreachable(cause: unknown): Problem {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new Problem({
    status: 0,
    code: "unreachable",
    title: "Cannot reach the control plane",
    detail: `The request got no response (${reason}). Runs continue; the page retries automatically.`,
  });
}
