/** One fault inside a request, at the place that `pointer` (a JSON pointer) names. */
export type FieldProblem = { pointer: string; code: string; message: string };

/** An error answer of the API (RFC 9457), or a request that got no answer at all (status 0). */
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

/** Reads whatever an error answer holds; a proxy's HTML page still becomes a sentence with the status in it. */
export function problemFrom(status: number, statusText: string, body: string): Problem {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    parsed = null; // Not JSON: the status line is all there is to show.
  }
  if (typeof parsed !== "object" || parsed === null) {
    return new Problem({ status, code: "unreadable", title: `${status} ${statusText}`.trim(), detail: `The server answered ${status} ${statusText}.` });
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
    title: "The control plane does not answer",
    detail: `No answer came (${reason}). Runs go on without it; the page tries again by itself.`,
  });
}
