import { useCallback, useEffect, useRef, useState } from "react";

import { get } from "../../api/http.ts";
import type { LogFile } from "../../api/schema.d.ts";
import { useTopic } from "../../stream/stream.ts";
import { append, prepend, type LogWindow } from "./log-window.ts";

const TAIL_BYTES = 64 * 1024;
const PART_BYTES = 256 * 1024;

export type OpenLog = {
  window: LogWindow;
  error: unknown;
  isLoading: boolean;
  /** whether the window ends where the log ends */
  isAtEnd: boolean;
  readEarlier: () => Promise<void>;
  readMore: () => Promise<void>;
  /** show the part around a byte; resolves to the number of line breaks before it */
  openAt: (offset: number) => Promise<number>;
  openEnd: () => Promise<void>;
};

/** The end of a log, which grows while the job writes, or another part of it. */
export function useLog(runId: string, file: LogFile): OpenLog {
  const tail = Math.max(0, file.bytes - TAIL_BYTES);
  const [window, setWindow] = useState<LogWindow>({ start: tail, next: tail, text: "" });
  const [error, setError] = useState<unknown>(null);
  const [isLoading, setLoading] = useState(true);
  const [isAtEnd, setAtEnd] = useState(false);
  const current = useRef(window);
  const queue = useRef(Promise.resolve()); // reads change the window one after the other

  const read = useCallback(async (offset: number, limit: number) => {
    const response = await get("/api/v1/runs/{run_id}/logs", { path: { run_id: runId }, query: { job: file.job, incarnation: file.incarnation, offset, limit } });
    return "text" in response ? response : { offset, next_offset: offset, text: "" };
  }, [runId, file.job, file.incarnation]);

  const change = useCallback((work: (window: LogWindow) => Promise<LogWindow>) => {
    const done = queue.current.then(async () => {
      setLoading(true);
      try {
        current.current = await work(current.current);
        setWindow(current.current);
        setError(null);
      } catch (failure) {
        setError(failure);
      } finally {
        setLoading(false);
      }
    });
    queue.current = done;
    return done;
  }, []);

  /** Parts from the end of the window on. `all` reads to the end of the log. */
  const readOn = useCallback((all: boolean) => change(async (old) => {
    let grown = old;
    for (;;) {
      const part = await read(grown.next, PART_BYTES);
      const isEnd = part.next_offset === grown.next;
      grown = append(grown, part);
      setAtEnd(isEnd);
      if (isEnd || !all) return grown;
    }
  }), [change, read]);

  const openEnd = useCallback(async () => {
    await change(async (old) => {
      const start = Math.max(0, Math.max(old.next, file.bytes) - TAIL_BYTES);
      return { start, next: start, text: "" };
    });
    await readOn(true);
  }, [change, readOn, file.bytes]);

  const openAt = useCallback(async (offset: number) => {
    let breaks = 0;
    await change(async () => {
      const start = Math.max(0, offset - TAIL_BYTES / 4);
      const before = start === offset ? { text: "" } : await read(start, offset - start);
      const part = await read(offset, TAIL_BYTES);
      breaks = before.text.split("\n").length - 1;
      setAtEnd(false);
      return { start, next: part.next_offset, text: before.text + part.text };
    });
    return breaks;
  }, [change, read]);

  const readEarlier = useCallback(() => change(async (old) => {
    if (old.start === 0) return old;
    const start = Math.max(0, old.start - PART_BYTES);
    const part = await read(start, old.start - start);
    return prepend(old, { offset: start, text: part.text });
  }), [change, read]);

  useEffect(() => void readOn(true), [readOn]);
  useTopic(`run:${runId}:logs`, (frame) => {
    const { job } = (frame.data ?? {}) as { job?: string };
    if (!isAtEnd || (job !== undefined && job !== file.job && job !== file.name)) return;
    void readOn(true);
  }, () => { if (isAtEnd) void readOn(true); });

  return { window, error, isLoading, isAtEnd, readEarlier, readMore: useCallback(() => readOn(false), [readOn]), openAt, openEnd };
}
