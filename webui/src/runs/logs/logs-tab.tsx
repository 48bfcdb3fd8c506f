import "@mantine/core/styles/Switch.css";
import { Button, Select, Switch, TextInput } from "@mantine/core";
import { useDebouncedCallback, useLocalStorage } from "@mantine/hooks";
import { IconArrowDown, IconArrowUp, IconDownload } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { useSearchParams } from "react-router";

import { urlOf } from "../../api/http.ts";
import * as queries from "../../api/queries.ts";
import type { LogFile, Run } from "../../api/schema.d.ts";
import { bytes } from "../../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../../common/notices.tsx";
import { useTopic } from "../../stream/stream.ts";
import { LogSearch } from "./log-search.tsx";
import { LogView } from "./log-view.tsx";
import { levelOf, linesOf, nextError } from "./log-window.ts";
import classes from "./logs-tab.module.css";
import { useLog } from "./use-log.ts";

const TYPING_MILLISECONDS = 300;
const LEVELS = [
  { value: "", label: "All lines" },
  { value: "WARNING", label: "Warnings or worse" },
  { value: "ERROR", label: "Errors" },
];

function nameOf(file: LogFile): string {
  return `${file.name}${file.incarnation > 0 ? `, restart ${file.incarnation}` : ""}${file.attempt > 1 ? `, attempt ${file.attempt}` : ""}`;
}

/** The log of a job: its end while it grows, any other part, and what the server finds in it. */
export function LogsTab({ run }: { run: Run }) {
  const files = useQuery(queries.runLogFiles(run.id));
  const [search, setSearch] = useSearchParams();
  const list = files.data ?? [];
  const selected = search.get("job");
  const file = list.find((entry) => `${entry.job}:${entry.incarnation}` === selected) ?? list.findLast((entry) => entry.job === selected) ?? list.findLast((entry) => entry.name === "trainer") ?? list[0];
  useTopic(`run:${run.id}:logs`, () => { if (list.length === 0) void files.refetch(); }, () => void files.refetch());
  if (files.isPending) return <Waiting label="Loading logs" />;
  if (file === undefined) return files.error === null ? <Empty title="No logs yet">The output of each job appears here from its first line on.</Empty> : <ProblemNotice error={files.error} retry={() => void files.refetch()} />;
  return (
    <>
      <ProblemNotice error={files.error} retry={() => void files.refetch()} />
      <Log
        key={`${file.job}:${file.incarnation}`} run={run} file={file}
        picker={
          <Select
            aria-label="Job" w={230} allowDeselect={false} value={`${file.job}:${file.incarnation}`}
            data={list.map((entry) => ({ value: `${entry.job}:${entry.incarnation}`, label: `${nameOf(entry)} · ${bytes(entry.bytes)}` }))}
            onChange={(value) => setSearch((old) => { old.set("job", value ?? ""); return old; }, { replace: true })}
          />
        }
      />
    </>
  );
}

function Log({ run, file, picker }: { run: Run; file: LogFile; picker: ReactNode }) {
  const [search, setSearch] = useSearchParams();
  const [text, level] = [search.get("find") ?? "", search.get("level") ?? ""];
  const set = (name: string, value: string) => setSearch((old) => { if (value === "") old.delete(name); else old.set(name, value); return old; }, { replace: true });
  const log = useLog(run.id, file);
  const [follow, setFollow] = useState(true);
  const [wrap, setWrap] = useLocalStorage({ key: "oolong.logs.wrap", defaultValue: true, getInitialValueInEffect: false });
  const [target, setTarget] = useState<{ line: number; request: number } | null>(null);
  const lines = useMemo(() => linesOf(log.window.text), [log.window.text]);
  const errors = useMemo(() => lines.reduce((count, line) => (levelOf(line) === "error" ? count + 1 : count), 0), [lines]);

  const show = (line: number) => { setFollow(false); setTarget((old) => ({ line, request: (old?.request ?? 0) + 1 })); };
  const jump = (direction: 1 | -1) => {
    const found = nextError(lines, target?.line ?? (direction === 1 ? -1 : lines.length), direction);
    if (found === null) set("level", "ERROR"); // none in the page: the server looks through the whole log
    else show(found);
  };
  const onFollow = (on: boolean) => {
    setFollow(on);
    setTarget(null);
    if (on && !log.isAtEnd) void log.openEnd();
  };
  const { readEarlier, readMore, isLoading, isAtEnd, window: shown } = log;
  const onNearStart = useCallback(() => { if (!isLoading && shown.start > 0) void readEarlier(); }, [isLoading, shown.start, readEarlier]);
  const onNearEnd = useCallback(() => { if (!isLoading && !isAtEnd) void readMore(); }, [isLoading, isAtEnd, readMore]);
  const download = urlOf("/api/v1/runs/{run_id}/logs/download", { run_id: run.id }, { job: file.job, incarnation: file.incarnation });
  return (
    <div className={classes.log}>
      <div className={classes.tools}>
        {picker}
        <Search text={text} onSearch={(typed) => set("find", typed)} />
        <Select aria-label="Level" w={170} allowDeselect={false} data={LEVELS} value={level} onChange={(value) => set("level", value ?? "")} />
        <Button.Group>
          <Button variant="default" leftSection={<IconArrowUp size={13} />} title="Previous error" onClick={() => jump(-1)} data-testid="previous-error">{errors} {errors === 1 ? "error" : "errors"}</Button>
          <Button variant="default" aria-label="Next error" title="Next error" onClick={() => jump(1)}><IconArrowDown size={13} /></Button>
        </Button.Group>
        <Switch label="Follow" checked={follow} onChange={(event) => onFollow(event.currentTarget.checked)} />
        <Switch label="Wrap" checked={wrap} onChange={(event) => setWrap(event.currentTarget.checked)} />
        <Button component="a" variant="subtle" leftSection={<IconDownload size={14} />} href={download} download>Download</Button>
      </div>
      <ProblemNotice error={log.error} retry={() => void log.readMore()} />
      {(text !== "" || level !== "") && <LogSearch runId={run.id} file={file} text={text} level={level} onOpen={(line) => { setFollow(false); void log.openAt(line.offset).then(show); }} />}
      <Notes file={file} start={log.window.start} isLoading={log.isLoading} onEarlier={() => void log.readEarlier()} />
      {lines.length === 0 && !log.isLoading && log.error === null
        ? <Empty title={file.removed_at === null ? "Nothing written yet" : "This log was removed"}>{file.removed_at === null ? "The job's output appears here as it comes." : "The installation keeps logs for a limited time."}</Empty>
        : <LogView lines={lines} start={log.window.start} wrap={wrap} follow={follow} target={target} onLeaveEnd={() => setFollow(false)} onNearStart={onNearStart} onNearEnd={onNearEnd} />}
    </div>
  );
}

function Notes({ file, start, isLoading, onEarlier }: { file: LogFile; start: number; isLoading: boolean; onEarlier: () => void }) {
  return (
    <>
      {file.dropped_bytes > 0 && <div className={classes.truncated}>{bytes(file.dropped_bytes)} were left out because the job wrote too fast.</div>}
      {start > 0 && <div className={classes.truncated}>The first {bytes(start)} are not loaded. <Button variant="subtle" size="compact-xs" loading={isLoading} onClick={onEarlier}>Load earlier lines</Button></div>}
    </>
  );
}

/** Holds what is typed, because the URL follows when the keys rest. */
function Search({ text, onSearch }: { text: string; onSearch: (typed: string) => void }) {
  const [typed, setTyped] = useState(text);
  const isTyping = useRef(false);
  const send = useDebouncedCallback((value: string) => { isTyping.current = false; onSearch(value); }, TYPING_MILLISECONDS);
  useEffect(() => { if (!isTyping.current) setTyped(text); }, [text]);
  return (
    <TextInput
      type="search" aria-label="Search the whole log" placeholder="Search the whole log  /" w={230} value={typed} maxLength={500}
      onChange={({ currentTarget }) => { isTyping.current = true; setTyped(currentTarget.value); send(currentTarget.value); }}
    />
  );
}
