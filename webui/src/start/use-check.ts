import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";

import { post } from "../api/http.ts";
import type { Json } from "../common/json.ts";

const TYPING_MILLISECONDS = 350;

/** The server's opinion of the spec a moment after it last changed, and what the run would take once the spec is valid. */
export function useCheck(spec: Json) {
  const [settled] = useDebouncedValue(spec, TYPING_MILLISECONDS);
  const validation = useQuery({
    queryKey: ["validate", settled],
    queryFn: () => post("/api/v1/runs/validate", { body: { spec: settled } }),
    placeholderData: keepPreviousData,
    retry: false,
    staleTime: 10_000,
  });
  const isValid = validation.data?.valid === true;
  const plan = useQuery({
    queryKey: ["plan", settled],
    queryFn: async () => (await post("/api/v1/runs/plan", { body: { spec: settled } })).plan,
    enabled: isValid && !validation.isPlaceholderData,
    placeholderData: keepPreviousData,
    retry: false,
    staleTime: 10_000,
  });
  return { validation, plan: { ...plan, data: isValid ? plan.data : undefined } };
}
