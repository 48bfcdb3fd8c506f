import { Problem, problemFrom, unreachable } from "./problem.ts";

export const API = "/api/v1";

export type Query = Record<string, string | number | boolean | null | undefined>;

type Options = { query?: Query; body?: unknown; headers?: Record<string, string>; signal?: AbortSignal };

let csrfToken: string | null = null;

/** The token that Django wants back with every change made under a session cookie. */
async function csrf(): Promise<string> {
  if (csrfToken === null) {
    const reply = await send<{ csrf_token: string }>("GET", "/session/csrf", {});
    csrfToken = reply.csrf_token;
  }
  return csrfToken;
}

/** Signing in or out changes the token; the next change asks for it again. */
export function forgetCsrfToken(): void {
  csrfToken = null;
}

export function address(path: string, query: Query = {}): string {
  const wanted = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(wanted.map(([name, value]) => [name, String(value)]));
  return `${API}${path}${wanted.length > 0 ? `?${search}` : ""}`;
}

async function send<T>(method: string, path: string, { query, body, headers, signal }: Options): Promise<T> {
  let reply: Response;
  try {
    reply = await fetch(address(path, query), {
      method,
      credentials: "same-origin",
      headers: {
        Accept: "application/json",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw unreachable(error);
  }
  const received = await reply.text();
  if (!reply.ok) throw problemFrom(reply.status, reply.statusText, received);
  return (received === "" ? undefined : JSON.parse(received)) as T;
}

export function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  return send<T>("GET", path, { query, signal });
}

/** POST, PATCH or DELETE under the session; a stale CSRF token is fetched anew once. */
export async function change<T>(method: "POST" | "PATCH" | "DELETE", path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  const attempt = async () => send<T>(method, path, { body, headers: { ...headers, "X-CSRFToken": await csrf() } });
  try {
    return await attempt();
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 403 || !/csrf/i.test(`${error.code} ${error.message}`)) throw error;
    forgetCsrfToken();
    return attempt();
  }
}

/** Sends a file as the raw body; `fetch` does not report how much has gone out, XMLHttpRequest does. */
export async function upload<T>(path: string, query: Query, file: File, onProgress: (sentBytes: number) => void): Promise<T> {
  const token = await csrf();
  return new Promise<T>((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", address(path, query));
    request.setRequestHeader("X-CSRFToken", token);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => onProgress(event.loaded);
    request.onerror = () => reject(unreachable(new Error("the connection broke during the upload")));
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) resolve(JSON.parse(request.responseText) as T);
      else reject(problemFrom(request.status, request.statusText, request.responseText));
    };
    request.send(file);
  });
}
