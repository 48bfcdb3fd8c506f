import { Problem, problemFrom, unreachable } from "./problem.ts";
import type { paths } from "./schema.d.ts";

/** The API's paths for each HTTP method, with the request and response types of each, taken from the generated schema. */
type Method = "get" | "post" | "put" | "patch" | "delete";
type Operation = { parameters: { query?: unknown; path?: unknown }; responses: unknown };
export type PathWith<M extends Method> = { [P in keyof paths]: paths[P][M & keyof paths[P]] extends Operation ? P : never }[keyof paths];
type OperationAt<P extends keyof paths, M extends Method> = Extract<paths[P][M & keyof paths[P]], Operation>;
type JsonOf<R> = R extends { content: { "application/json": infer T } } ? T : undefined;
type Succeeded<R> = R[Extract<keyof R, 200 | 201 | 202 | 204>];
export type ResponseOf<P extends keyof paths, M extends Method> = JsonOf<Succeeded<OperationAt<P, M>["responses"]>>;
type BodyAt<P extends keyof paths, M extends Method> = OperationAt<P, M> extends { requestBody?: infer B } ? JsonOf<NonNullable<B>> : undefined;
type Input<P extends keyof paths, M extends Method> = {
  path?: OperationAt<P, M>["parameters"]["path"];
  query?: OperationAt<P, M>["parameters"]["query"];
};

type Query = Record<string, unknown>;
type RequestOptions = { path?: unknown; query?: unknown; body?: unknown; headers?: Record<string, string>; signal?: AbortSignal };

let csrfToken: string | null = null;

/** The CSRF token that Django requires on every write with a session cookie. */
export async function csrf(): Promise<string> {
  csrfToken ??= (await get("/api/v1/session/csrf")).csrf_token;
  return csrfToken;
}

/** Drop the CSRF token, because signing in or out changes it. The next write fetches a new one. */
export function forgetCsrfToken(): void {
  csrfToken = null;
}

/** Build a URL: fill `{run_id}` in the path from `pathParams`, and omit absent and empty query values. */
export function urlOf(path: keyof paths, pathParams: unknown = {}, query: unknown = {}): string {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String((pathParams as Query)[name])));
  const present = Object.entries(query as Query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(present.flatMap(([name, value]) => [value].flat().map((one) => [name, String(one)])));
  return `${filled}${present.length > 0 ? `?${search}` : ""}`;
}

async function send(method: Method, path: keyof paths, options: RequestOptions): Promise<unknown> {
  const received = await sendForText(method, path, options);
  return received === "" ? undefined : JSON.parse(received);
}

async function sendForText(method: Method, path: keyof paths, { path: pathParams, query, body, headers, signal }: RequestOptions): Promise<string> {
  let response: Response;
  try {
    response = await fetch(urlOf(path, pathParams, query), {
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
  const received = await response.text();
  if (!response.ok) throw problemFrom(response.status, response.statusText, received);
  return received;
}

export async function get<P extends PathWith<"get">>(path: P, input: Input<P, "get"> = {}, signal?: AbortSignal): Promise<ResponseOf<P, "get">> {
  return (await send("get", path, { ...input, signal })) as ResponseOf<P, "get">;
}

/** A response that is not JSON, such as Markdown. */
export async function getText<P extends PathWith<"get">>(path: P, input: Input<P, "get"> = {}, signal?: AbortSignal): Promise<string> {
  return sendForText("get", path, { ...input, signal });
}

type Change<P extends keyof paths, M extends Method> = Input<P, M> & { body?: BodyAt<P, M>; headers?: Record<string, string> };

/** Send POST, PUT, PATCH or DELETE in the session. If the CSRF token is stale, fetch a new one and retry once. */
async function change(method: Method, path: keyof paths, input: RequestOptions): Promise<unknown> {
  const attempt = async () => send(method, path, { ...input, headers: { ...input.headers, "X-CSRFToken": await csrf() } });
  try {
    return await attempt();
  } catch (error) {
    if (!(error instanceof Problem) || error.status !== 403 || !/csrf/i.test(`${error.code} ${error.message}`)) throw error;
    forgetCsrfToken();
    return attempt();
  }
}

export async function post<P extends PathWith<"post">>(path: P, input: Change<P, "post"> = {}): Promise<ResponseOf<P, "post">> {
  return (await change("post", path, input)) as ResponseOf<P, "post">;
}

export async function put<P extends PathWith<"put">>(path: P, input: Change<P, "put"> = {}): Promise<ResponseOf<P, "put">> {
  return (await change("put", path, input)) as ResponseOf<P, "put">;
}

export async function patch<P extends PathWith<"patch">>(path: P, input: Change<P, "patch"> = {}): Promise<ResponseOf<P, "patch">> {
  return (await change("patch", path, input)) as ResponseOf<P, "patch">;
}

export async function remove<P extends PathWith<"delete">>(path: P, input: Change<P, "delete"> = {}): Promise<void> {
  await change("delete", path, input);
}

/** Upload one part as the raw body. Uses XMLHttpRequest because `fetch` does not report upload progress. */
export async function putPart(session: string, number: number, data: Blob, sha256: string, onProgress: (sentBytes: number) => void): Promise<void> {
  const token = await csrf();
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", urlOf("/api/v1/upload-sessions/{session_id}/parts/{number}", { session_id: session, number }));
    request.setRequestHeader("X-CSRFToken", token);
    request.setRequestHeader("X-Part-SHA256", sha256);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.onprogress = (event) => onProgress(event.loaded);
    request.onerror = () => reject(unreachable(new Error("the connection was lost during the upload. Drop the same file again to resume.")));
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) resolve();
      else reject(problemFrom(request.status, request.statusText, request.responseText));
    };
    request.send(data);
  });
}
