import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import type { ReactElement } from "react";
import { MemoryRouter } from "react-router";
import { onTestFinished } from "vitest";

import { forgetCsrfToken } from "../api/http.ts";
import { theme } from "../app/theme.ts";

/** Renders a component inside the providers of the page, at `path` of the address. Dialogs open without animation. */
export function renderPage(element: ReactElement, { path = "/" }: { path?: string } = {}) {
  const client = new QueryClient({ defaultOptions: { queries: { retry: false }, mutations: { retry: false } } });
  return render(
    <MantineProvider theme={theme} env="test">
      <QueryClientProvider client={client}>
        <MemoryRouter initialEntries={[path]}>{element}</MemoryRouter>
      </QueryClientProvider>
    </MantineProvider>,
  );
}

export type SentRequest = { method: string; url: string; body: unknown };
type Answer = { status?: number; body?: unknown };

/**
 * Answers the requests of the running test by "METHOD /path?query" and returns a list of those that were sent. A request
 * without an answer fails as an unreachable server does, so the component shows it.
 */
export function answerRequests(answers: Record<string, Answer | ((request: SentRequest) => Answer)>): SentRequest[] {
  const sent: SentRequest[] = [];
  const original = globalThis.fetch;
  forgetCsrfToken();
  globalThis.fetch = async (input, init) => {
    const request = { method: init?.method ?? "GET", url: String(input), body: typeof init?.body === "string" ? JSON.parse(init.body) : undefined };
    sent.push(request);
    const key = `${request.method} ${request.url}`;
    const answer = answers[key] ?? (key === "GET /api/v1/session/csrf" ? { body: { csrf_token: "token-of-the-test" } } : undefined);
    if (answer === undefined) throw new TypeError(`The test has no answer for ${key}.`);
    const { status = 200, body } = typeof answer === "function" ? answer(request) : answer;
    return new Response(body === undefined ? null : JSON.stringify(body), { status, headers: { "Content-Type": "application/json" } });
  };
  onTestFinished(() => { globalThis.fetch = original; });
  return sent;
}
