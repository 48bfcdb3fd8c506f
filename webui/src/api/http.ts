import { Problem, problemFrom, unreachable } from "./problem.ts";
import type { paths } from "./schema.d.ts";

/** The addresses of the API that know a method, and what each takes and answers, all read from its schema. */
type Method = "get" | "post" | "put" | "patch" | "delete";
type Operation = { parameters: { query?: unknown; path?: unknown }; responses: unknown };
export type PathWith<M extends Method> = { [P in keyof paths]: paths[P][M & keyof paths[P]] extends Operation ? P : never }[keyof paths];
type OperationAt<P extends keyof paths, M extends Method> = Extract<paths[P][M & keyof paths[P]], Operation>;
type JsonOf<R> = R extends { content: { "application/json": infer T } } ? T : undefined;
type Succeeded<R> = R[Extract<keyof R, 200 | 201 | 202 | 204>];
export type Answer<P extends keyof paths, M extends Method> = JsonOf<Succeeded<OperationAt<P, M>["responses"]>>;
type BodyAt<P extends keyof paths, M extends Method> = OperationAt<P, M> extends { requestBody?: infer B } ? JsonOf<NonNullable<B>> : undefined;
type In<P extends keyof paths, M extends Method> = {
  path?: OperationAt<P, M>["parameters"]["path"];
  query?: OperationAt<P, M>["parameters"]["query"];
};

type Query = Record<string, unknown>;
type Sent = { path?: unknown; query?: unknown; body?: unknown; headers?: Record<string, string>; signal?: AbortSignal };

let csrfToken: string | null = null;

/** The token that Django wants back with every change made under a session cookie. */
async function csrf(): Promise<string> {
  csrfToken ??= (await get("/api/v1/session/csrf")).csrf_token;
  return csrfToken;
}

/** Signing in or out changes the token; the next change asks for it again. */
export function forgetCsrfToken(): void {
  csrfToken = null;
}

/** `{run_id}` in the path is filled from `into`; absent and empty query values are left out. */
export function address(path: keyof paths, into: unknown = {}, query: unknown = {}): string {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String((into as Query)[name])));
  const wanted = Object.entries(query as Query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(wanted.flatMap(([name, value]) => [value].flat().map((one) => [name, String(one)])));
  return `${filled}${wanted.length > 0 ? `?${search}` : ""}`;
}

async function send(method: Method, path: keyof paths, { path: into, query, body, headers, signal }: Sent): Promise<unknown> {
  let reply: Response;
  try {
    reply = await fetch(address(path, into, query), {
      method: method.toUpperCase(),
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
  return received === "" ? undefined : JSON.parse(received);
}

export async function get<P extends PathWith<"get">>(path: P, input: In<P, "get"> = {}, signal?: AbortSignal): Promise<Answer<P, "get">> {
  return (await send("get", path, { ...input, signal })) as Answer<P, "get">;
}

type Change<P extends keyof paths, M extends Method> = In<P, M> & { body?: BodyAt<P, M>; headers?: Record<string, string> };

/** POST, PUT, PATCH or DELETE under the session; a stale CSRF token is fetched anew once. */
async function change(method: Method, path: keyof paths, input: Sent): Promise<unknown> {
  const attempt = async () => send(method, path, { ...input, headers: { ...input.headers, "X-CSRFToken": await csrf() } });
  try {
    return await attempt();
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 403 || !/csrf/i.test(`${error.code} ${error.message}`)) throw error;
    forgetCsrfToken();
    return attempt();
  }
}

export async function post<P extends PathWith<"post">>(path: P, input: Change<P, "post"> = {}): Promise<Answer<P, "post">> {
  return (await change("post", path, input)) as Answer<P, "post">;
}

export async function put<P extends PathWith<"put">>(path: P, input: Change<P, "put"> = {}): Promise<Answer<P, "put">> {
  return (await change("put", path, input)) as Answer<P, "put">;
}

export async function patch<P extends PathWith<"patch">>(path: P, input: Change<P, "patch"> = {}): Promise<Answer<P, "patch">> {
  return (await change("patch", path, input)) as Answer<P, "patch">;
}

export async function remove<P extends PathWith<"delete">>(path: P, input: Change<P, "delete"> = {}): Promise<void> {
  await change("delete", path, input);
}

/** Sends one part as the raw body; `fetch` does not report how much has gone out, XMLHttpRequest does. */
export async function putPart(session: string, number: number, data: Blob, sha256: string, onProgress: (sentBytes: number) => void): Promise<void> {
  const token = await csrf();
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", address("/api/v1/upload-sessions/{session_id}/parts/{number}", { session_id: session, number }));
    request.setRequestHeader("X-CSRFToken", token);
    request.setRequestHeader("X-Part-SHA256", sha256);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => onProgress(event.loaded);
    request.onerror = () => reject(unreachable(new Error("the connection broke during the upload; drop the same file again to go on")));
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) resolve();
      else reject(problemFrom(request.status, request.statusText, request.responseText));
    };
    request.send(data);
  });
}
