import "@mantine/core/styles/Switch.css";
import { Button, Select, Switch, TextInput } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { useSearchParams } from "react-router";

import { get, urlOf } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { LogFile, Run } from "../api/schema.d.ts";
import { bytes } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { useTopic } from "../stream/stream.ts";
import classes from "./logs-tab.module.css";

const TAIL_BYTES = 64 * 1024;
const PART_BYTES = 256 * 1024;
const MAX_CHARACTERS = 1_000_000;

function nameOf(file: LogFile): string {
  return `${file.name}${file.incarnation > 0 ? `, restart ${file.incarnation}` : ""}${file.attempt > 1 ? `, attempt ${file.attempt}` : ""}`;
}

/** The end of a job's log, followed while the tab is open. */
export function LogsTab({ run }: { run: Run }) {
  const files = useQuery(queries.runLogFiles(run.id));
  const [search, setSearch] = useSearchParams();
  const list = files.data ?? [];
  const selected = search.get("job");
  const file = list.find((entry) => `${entry.job}:${entry.incarnation}` === selected) ?? list.findLast((entry) => entry.job === selected) ?? list.findLast((entry) => entry.name === "trainer") ?? list[0];
  useTopic(`run:${run.id}:logs`, () => { if (list.length === 0) void files.refetch(); }, () => void files.refetch());
  if (files.isPending) return <Waiting />;
  if (file === undefined) return <><ProblemNotice error={files.error} /><Empty title="No logs yet">The output of each job appears here from its first line on.</Empty></>;
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

function Log({ run, file, picker }: { run: Run; file: LogFile; picker: React.ReactNode }) {
  const start = Math.max(0, file.bytes - TAIL_BYTES);
  const [text, setText] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [follow, setFollow] = useState(true);
  const [filter, setFilter] = useState("");
  const offset = useRef(start);
  const isReading = useRef(false);
  const readAgain = useRef(false);
  const box = useRef<HTMLPreElement>(null);

  const read = async () => {
    if (isReading.current) {
      readAgain.current = true;
      return;
    }
    isReading.current = true;
    try {
      let isAtEnd = false;
      while (!isAtEnd) {
        readAgain.current = false;
        const response = await get("/api/v1/runs/{run_id}/logs", { path: { run_id: run.id }, query: { job: file.job, incarnation: file.incarnation, offset: offset.current, limit: PART_BYTES } });
        if (!("text" in response)) break;
        const part = response;
        isAtEnd = part.next_offset === offset.current && !readAgain.current;
        offset.current = part.next_offset;
        if (part.text !== "") setText((old) => (old + part.text).slice(-MAX_CHARACTERS));
      }
      setError(null);
    } catch (failure) {
      setError(failure);
    } finally {
      isReading.current = false;
    }
  };
  useEffect(() => void read(), []);
  useTopic(`run:${run.id}:logs`, (frame) => {
    const { job } = (frame.data ?? {}) as { job?: string };
    if (job === undefined || job === file.job || job === file.name) void read();
  }, () => void read());

  const lines = useMemo(() => {
    const whole = text.split("\n");
    return filter === "" ? whole : whole.filter((line) => line.toLowerCase().includes(filter.toLowerCase()));
  }, [text, filter]);
  useEffect(() => {
    if (follow && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follow]);

  return (
    <div className={classes.log}>
      <div className={classes.tools}>
        {picker}
        <TextInput type="search" aria-label="Search the log" placeholder="Search  /" w={240} value={filter} onChange={(event) => setFilter(event.currentTarget.value)} />
        <Switch label="Follow" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} />
        <span className={classes.count}>{filter === "" ? "" : `${lines.length} lines`}</span>
        <Button component="a" variant="subtle" leftSection={<IconDownload size={14} />} target="_blank" rel="noreferrer" href={urlOf("/api/v1/runs/{run_id}/logs", { run_id: run.id }, { job: file.job, incarnation: file.incarnation, offset: 0, limit: 1_048_576 })}>Open raw log</Button>
      </div>
      <ProblemNotice error={error} retry={() => void read()} />
      {start > 0 && <div className={classes.truncated}>First {bytes(start)} not shown</div>}
      <pre ref={box} className={classes.text} tabIndex={0} data-testid="log" onWheel={(event) => { if (event.deltaY < 0) setFollow(false); }}>{lines.join("\n")}</pre>
    </div>
  );
}
