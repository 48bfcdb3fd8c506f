import { Button, Group, Select } from "@mantine/core";
import { IconArchive, IconDownload, IconPlus, IconTestPipe } from "@tabler/icons-react";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearchParams } from "react-router";

import { urlOf } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import { CopyId } from "../common/copy-id.tsx";
import { ago, bytes, moment } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Fact, Facts, PageHeader, Panel } from "../common/panel.tsx";
import { PendingPage } from "../common/pending-page.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { StatusBadge } from "../common/status.tsx";
import { TestsTable } from "../reward-tests/tests-table.tsx";
import { ArchiveFunction } from "./archive-function.tsx";
import { CodeView } from "./code-view.tsx";
import classes from "./function-page.module.css";
import { KINDS, signature, specLines, usesText } from "./kinds.ts";
import { SpecSnippet } from "./spec-snippet.tsx";
import type { FunctionVersion } from "./types.ts";
import { startWith } from "./use-function.ts";

const RUNS_SHOWN = 8;
const TRAINING_KINDS = "rl,sft,eval"; // tests of a reward have a panel of their own

export function FunctionPage() {
  const { functionId = "" } = useParams();
  const { data, error, refetch } = useQuery(queries.functionById(functionId));
  const [search, setSearch] = useSearchParams();
  const readOnly = readOnlyReason(useQuery(queries.me).data?.role);
  if (data === undefined) return <PendingPage title="Function" error={error} retry={refetch} />;
  const version = data.versions.find(({ number }) => String(number) === search.get("version")) ?? data.versions[0];
  const { label, runsIn, help } = KINDS[data.kind];
  const isArchived = data.archived_at !== null;
  if (version === undefined) return <PageHeader title={data.name}>This function has no version.</PageHeader>;
  return (
    <>
      <PageHeader
        title={data.name}
        aside={readOnly === null && (
          <>
            {!isArchived && data.kind === "reward" && <Button component={Link} to={`/functions/tests/new?reward=${encodeURIComponent(version.ref)}`} variant="default" leftSection={<IconTestPipe size={14} />}>Test this reward</Button>}
            {!isArchived && <Button component={Link} to={`/functions/new?function=${data.id}`} leftSection={<IconPlus size={14} />}>New version</Button>}
          </>
        )}
      >
        {isArchived && <span className={classes.archived} title={moment(data.archived_at)}><IconArchive size={13} aria-hidden /> Archived {ago(data.archived_at)}. </span>}
        {label}{data.description !== "" && `: ${data.description}`}
      </PageHeader>
      <div className={classes.page}>
        <div className={classes.column}>
          <Panel
            title={`Source of ${version.ref}`} flush
            aside={(
              <>
                <Select
                  aria-label="Version" w={220} allowDeselect={false} value={String(version.number)} onChange={(value) => setSearch(value === null ? {} : { version: value }, { replace: true })}
                  data={data.versions.map(({ number, ref, created_at }) => ({ value: String(number), label: `${ref}, ${ago(created_at)}` }))}
                />
                <Button component="a" variant="default" href={urlOf("/api/v1/function-versions/{function_version_id}/source", { function_version_id: version.id })} download leftSection={<IconDownload size={14} />}>Download</Button>
              </>
            )}
          >
            <Source version={version} />
          </Panel>
          {data.kind === "reward" && <Panel title={`Tests of ${version.ref}`} flush><TestsTable key={version.ref} reward={version.ref} empty="A test scores completions and reward-hacking probes before a run learns from this reward." /></Panel>}
        </div>
        <div className={classes.column}>
          <Panel title="Version">
            <Facts>
              <Fact label="Uploaded by">{version.created_by}</Fact>
              <Fact label="Uploaded" help={moment(version.created_at)}>{ago(version.created_at)}</Fact>
              <Fact label="Size">{bytes(version.bytes)}</Fact>
              <Fact label="SHA-256" help="Of the file. The same source finds the same version again."><CopyId id={version.sha256} label={version.sha256.slice(0, 12)} /></Fact>
            </Facts>
            <p className={classes.signature}><code className="mono">{signature(version)}</code></p>
            <p className={classes.note}>{runsIn} <a href={`/docs/${help}`} target="_blank" rel="noreferrer">Documentation</a></p>
          </Panel>
          {!isArchived && <Panel title="Use it in a run"><SpecSnippet text={specLines(version)} start={startWith(version)} /></Panel>}
          <Uses key={version.ref} version={version} />
          {readOnly === null && <ArchiveFunction entry={data} />}
          <p className={classes.note}>A version is immutable. It stays as long as anything refers to it, so that the history of runs stays complete.</p>
        </div>
      </div>
    </>
  );
}

function Source({ version }: { version: FunctionVersion }) {
  const { data, error, isPending, refetch } = useQuery(queries.functionSource(version.id));
  if (isPending) return <Waiting label="Loading source" />;
  if (data === undefined) return <ProblemNotice error={error} retry={() => void refetch()} />;
  return <CodeView source={data} label={`Source of ${version.ref}`} />;
}

function Uses({ version }: { version: FunctionVersion }) {
  const query = useInfiniteQuery(queries.runs({ function: version.ref, kind: TRAINING_KINDS }, RUNS_SHOWN));
  const runs = query.data?.pages[0]?.data ?? [];
  return (
    <Panel title={`Runs of ${version.ref}`}>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.isPending ? <Waiting /> : query.data !== undefined && runs.length === 0 ? <Empty title="No run uses it yet">Name {version.ref} in the spec of a run.</Empty> : query.data !== undefined && (
        <>
          <ul className={classes.uses} data-testid="uses">
            {runs.map((run) => <li key={run.id}><Link to={`/runs/${run.id}`}>{run.name}</Link><StatusBadge status={run.status} /></li>)}
          </ul>
          <Group justify="space-between" mt={8}><span className={classes.note}>{usesText(runs.length, query.hasNextPage)}</span><Link to={`/runs?function=${encodeURIComponent(version.ref)}&kind=${TRAINING_KINDS}`} className={classes.note}>All in the run list</Link></Group>
        </>
      )}
    </Panel>
  );
}
