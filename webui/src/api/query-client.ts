import { QueryClient } from "@tanstack/react-query";

import { Problem } from "./problem.ts";

/** Whether a retry can succeed: the request got no response or a server error. */
function isRetryable(error: Error): boolean {
  return error instanceof Problem && (error.status === 0 || error.status >= 500);
}

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      retry: (failures, error) => isRetryable(error) && failures < 2,
      refetchOnWindowFocus: true,
    },
    mutations: { retry: false },
  },
});
