import { useEffect, useEffectEvent, useSyncExternalStore } from "react";

import { queryClient } from "../api/query-client.ts";
import { StreamConnection, type Frame, type StreamState, type WebSocketLike } from "./connection.ts";

function openSocket(): WebSocketLike {
  const scheme = window.location.protocol === "https:" ? "wss" : "ws";
  return new WebSocket(`${scheme}://${window.location.host}/ws/v1`) as unknown as WebSocketLike;
}

export const stream = new StreamConnection({
  open: openSocket,
  now: Date.now,
  after: (milliseconds, then) => {
    const timer = window.setTimeout(then, milliseconds);
    return () => window.clearTimeout(timer);
  },
});

stream.onUnauthenticated = () => void queryClient.invalidateQueries({ queryKey: ["me"] });

export function useStreamState(): StreamState {
  return useSyncExternalStore(stream.watch, stream.getState);
}

/** Subscribe to a topic while the component is mounted. A gap calls `refetch`. */
export function useTopic(topic: string | null, onFrame: (frame: Frame) => void, refetch: () => void): void {
  const deliver = useEffectEvent(onFrame);
  const onRefetch = useEffectEvent(refetch);
  useEffect(() => {
    if (topic === null) return;
    return stream.subscribe(topic, null, {
      onFrame: (frame) => deliver(frame),
      onGap: (resumeAfter, lostUpTo) => {
        onRefetch();
        resumeAfter(lostUpTo);
      },
    });
  }, [topic]);
}
