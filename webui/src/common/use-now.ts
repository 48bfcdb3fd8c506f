import { useEffect, useState } from "react";

/** The current time in milliseconds, updated every `everyMilliseconds` while mounted. */
export function useNow(everyMilliseconds = 1_000): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now()), everyMilliseconds);
    return () => window.clearInterval(timer);
  }, [everyMilliseconds]);
  return now;
}
