import { queryOptions } from "@tanstack/react-query";

import { get } from "../api/http.ts";
import { sideStatus } from "./playground-api.ts";
import { hasSideEnded } from "./side-state.ts";

const STARTING_MILLISECONDS = 2_000;
const READY_MILLISECONDS = 10_000;

export const PLAYGROUNDS = ["playgrounds"] as const;

export const playgrounds = queryOptions({
  queryKey: PLAYGROUNDS,
  queryFn: ({ signal }) => get("/api/v1/playgrounds", { query: { limit: 20 } }, signal),
  refetchInterval: READY_MILLISECONDS,
});

/** Asked often until each side is ready or has ended, then rarely. */
export const playground = (id: string) =>
  queryOptions({
    queryKey: [...PLAYGROUNDS, id],
    queryFn: ({ signal }) => get("/api/v1/playgrounds/{playground_id}", { path: { playground_id: id } }, signal),
    refetchInterval: ({ state: { data } }) => {
      if (data === undefined) return STARTING_MILLISECONDS;
      if (!data.open) return false;
      return data.sides.every((side) => side.ready || hasSideEnded(side)) ? READY_MILLISECONDS : STARTING_MILLISECONDS;
    },
  });

/** When the slot of a ready side is released. Asking does not count as use. */
export const statusOfSide = (baseUrl: string) =>
  queryOptions({ queryKey: [...PLAYGROUNDS, "side", baseUrl], queryFn: ({ signal }) => sideStatus(baseUrl, signal), refetchInterval: READY_MILLISECONDS, retry: false });
