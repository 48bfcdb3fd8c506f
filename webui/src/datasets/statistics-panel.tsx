import "@mantine/core/styles/NumberInput.css";
import { Button, Group, NumberInput, Progress, Select } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient, keepPreviousData } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "react-router";

import { post } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Lengths, Measurement, Version } from "../api/schema.d.ts";
import { grouped, percent } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Fact, Facts, Panel } from "../common/panel.tsx";
import classes from "./statistics.module.css";
import { bars } from "./version-text.ts";

const POLL_MILLISECONDS = 1_500;
const runs = (found: Measurement | undefined) => found?.state === "QUEUED" || found?.state === "RUNNING";

/** Token lengths of prompts and completions under the tokenizer of a stored base model. Counted once per version. */
export function StatisticsPanel({ version, readOnly }: { version: Version; readOnly: string | null }) {
  const [search, setSearch] = useSearchParams();
  const [over, setOver] = useState<number | string>("");
  const [settled] = useDebouncedValue(over, 400);
  const models = useQuery(queries.models);
  const client = useQueryClient();
  const limit = settled === "" ? undefined : Number(settled);
  const statistics = useQuery({ ...queries.datasetStatistics(version.id, limit), placeholderData: keepPreviousData, refetchInterval: (query) => (query.state.data?.some(runs) ? POLL_MILLISECONDS : false) });
  const usable = (models.data?.data ?? []).filter(({ state, source }) => state === "READY" && source !== "path");
  const chosen = search.get("tokenizer") ?? statistics.data?.[0]?.model.id ?? usable[0]?.id ?? null;
  const found = statistics.data?.find(({ model }) => model.id === chosen);
  const count = useMutation({
    mutationFn: (model: string) => post("/api/v1/dataset-versions/{version_id}/statistics", { path: { version_id: version.id }, body: { model } }),
    onSuccess: () => void client.invalidateQueries({ queryKey: ["dataset-versions", version.id, "statistics"] }),
  });
  return (
    <Panel
      title={`Token lengths of ${version.ref}`}
      aside={(
        <>
          <Select aria-label="Tokenizer" placeholder="Tokenizer of" w={220} searchable nothingFoundMessage="No stored model" data={usable.map(({ id, ref, name }) => ({ value: id, label: ref || name }))} value={chosen} onChange={(value) => setSearch((old) => { const next = new URLSearchParams(old); if (value === null) next.delete("tokenizer"); else next.set("tokenizer", value); return next; }, { replace: true })} />
          {(found === undefined || found.state === "FAILED") && <Button variant="default" disabled={chosen === null || readOnly !== null} title={readOnly ?? undefined} loading={count.isPending} onClick={() => chosen !== null && count.mutate(chosen)} data-testid="count-tokens">Count tokens</Button>}
        </>
      )}
    >
      <ProblemNotice error={statistics.error ?? models.error ?? count.error} retry={() => { void statistics.refetch(); void models.refetch(); }} />
      {statistics.isPending || models.isPending ? <Waiting /> : found === undefined ? (
        <Empty title={usable.length === 0 ? "No stored base model" : "Not counted with this tokenizer yet"}>
          {usable.length === 0 ? "Upload or import a base model: its tokenizer counts the tokens. A model that lies on the nodes cannot count." : "Counting runs once in the background, and its result stays with the version."}
        </Empty>
      ) : found.state === "FAILED" ? <p className={classes.note} role="alert">Counting failed: {found.message}</p> : runs(found) ? (
        <div role="status"><p className={classes.note}>{found.state === "QUEUED" ? "Waits for a worker." : `Counting: ${Math.floor((100 * found.bytes_seen) / Math.max(1, found.bytes))} % of the rows`}</p><Progress value={(100 * found.bytes_seen) / Math.max(1, found.bytes)} aria-label="Rows counted" /></div>
      ) : (
        <>
          <Facts>
            <Fact label="Vocabulary" help="Tokens of the tokenizer.">{grouped(found.vocabulary)}</Fact>
            <Fact label="Duplicates" help="Rows whose prompt and answer an earlier row had.">{grouped(found.duplicates)} ({percent(found.duplicates / Math.max(1, version.rows))})</Fact>
            <Fact label="Conflicting answers" help="Rows whose prompt an earlier row had, with another answer. No policy can get both right.">{grouped(found.conflicts)}</Fact>
            <Fact label="Missing answers" help="A version has none: a row without an answer is rejected when it is uploaded.">0</Fact>
            <Fact label="Without completion" help="Rows without a demonstration. A warm start needs one in each row of its split.">{grouped(found.without_completion)}</Fact>
          </Facts>
          <Group mt={12} mb={4}><NumberInput label="Share of rows longer than" description="tokens, such as the context that a run has left" w={220} min={0} allowDecimal={false} value={over} onChange={setOver} /></Group>
          {[["Prompts", found.prompts], ["Completions", found.completions]].map(([title, bySplit]) => Object.entries(bySplit as Record<string, Lengths>).map(([split, lengths]) => <Histogram key={`${title as string} ${split}`} title={`${title as string} of ${split}`} lengths={lengths} over={limit} />))}
        </>
      )}
    </Panel>
  );
}

function Histogram({ title, lengths, over }: { title: string; lengths: Lengths; over: number | undefined }) {
  return (
    <figure className={classes.histogram} data-testid="histogram">
      <figcaption>
        <b>{title}</b>
        <span className="tabular">mean {grouped(Math.round(lengths.mean))}, median {grouped(lengths.p50)}, p95 {grouped(lengths.p95)}, p99 {grouped(lengths.p99)}, longest {grouped(lengths.largest)} tokens{lengths.share_over !== null && over !== undefined && <>; <b>{percent(lengths.share_over)}</b> over {grouped(over)}</>}</span>
      </figcaption>
      <div className={classes.bars} role="img" aria-label={`${title}: ${grouped(lengths.rows)} rows, from ${lengths.smallest} to ${lengths.largest} tokens, half of them up to ${lengths.p50}`}>
        {bars(lengths.histogram).map(({ from, to, rows, height }) => <span key={to} title={`${from === to ? from : `${from} to ${to}`} tokens: ${grouped(rows)} rows`} data-over={over !== undefined && from > over}><i style={{ height: `${rows > 0 ? Math.max(1, height) : 0}%` }} /></span>)}
      </div>
      <div className={`${classes.axis} tabular`}><span>{lengths.histogram[0] === undefined ? 0 : Math.max(0, lengths.histogram[0].above + 1)}</span><span>{grouped(lengths.largest)} tokens</span></div>
    </figure>
  );
}
