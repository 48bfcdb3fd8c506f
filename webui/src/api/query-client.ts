import { QueryClient } from "@tanstack/react-query";

import { Problem } from "./problem.ts";

/** Only what may pass by itself is tried again: no answer, or a server-side fault. */
function mayPass(error: Error): boolean {
  return error instanceof Problem && (error.status === 0 || error.status >= 500);
}

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      retry: (failures, error) => mayPass(error) && failures < 2,
      refetchOnWindowFocus: true,
    },
    mutations: { retry: false },
  },
});
