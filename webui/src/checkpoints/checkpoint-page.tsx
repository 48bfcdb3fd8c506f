import { Button, Table } from "@mantine/core";
import { IconBookmark, IconMessageCircle, IconPin, IconPinnedOff, IconPlus } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "react-router";

import { checkpoint as checkpointQuery, CHECKPOINTS, checkpointLineage, modelCard } from "../api/checkpoint-queries.ts";
import { patch } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Checkpoint } from "../api/schema.d.ts";
import { CopyId } from "../common/copy-id.tsx";
import { bytes, moment, number } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PendingPage } from "../common/pending-page.tsx";
import { Fact, Facts, PageHeader, Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useDialog } from "../common/use-dialog.ts";
import { AliasDialogs, type AliasDialog } from "./alias-dialogs.tsx";
import { AliasNames, checkpointPath } from "./checkpoint-cells.tsx";
import { orderedMetrics } from "./checkpoint-metrics.ts";
import classes from "./checkpoint-page.module.css";
import { CopyText, TextBlock } from "./code-block.tsx";
import { DownloadPanel } from "./download-panel.tsx";
import { FilesPanel } from "./files-panel.tsx";
import { LineageGraph } from "./lineage-graph.tsx";

const UPLOAD_POLL_MILLISECONDS = 5_000;

export function CheckpointPage() {
  const { checkpointId = "" } = useParams();
  const { data: checkpoint, error, refetch } = useQuery({
    ...checkpointQuery(checkpointId),
    refetchInterval: ({ state: { data } }) => (data?.state === "LOCAL" ? UPLOAD_POLL_MILLISECONDS : false),
  });
  if (checkpoint === undefined) return <PendingPage title="Checkpoint" label="Loading checkpoint" error={error} retry={refetch} />;
  return (
    <>
      <Header checkpoint={checkpoint} />
      <Panel title="Lineage"><LineageOf id={checkpoint.id} /></Panel>
      <div className={classes.columns}>
        <div className={classes.column}>
          <FilesPanel checkpoint={checkpoint} />
          <CardPanel id={checkpoint.id} />
        </div>
        <div className={classes.column}>
          <Summary checkpoint={checkpoint} />
          <Metrics metrics={checkpoint.metrics} />
          <DownloadPanel checkpoint={checkpoint} />
        </div>
      </div>
    </>
  );
}

function Header({ checkpoint }: { checkpoint: Checkpoint }) {
  const scopes = useQuery(queries.me).data?.scopes ?? [];
  const isStored = checkpoint.state === "STORED";
  const mayRun = scopes.includes("runs:write");
  return (
    <PageHeader
      title={`${checkpoint.run.name}, step ${checkpoint.step}`}
      aside={isStored && mayRun ? (
        <>
          <Button component={Link} to={`/playground?checkpoint=${checkpoint.id}`} variant="default" leftSection={<IconMessageCircle size={14} />}>Open in the playground</Button>
          <Button component={Link} to={`/runs/new?checkpoint=${checkpoint.id}&from=${checkpoint.run.id}`} leftSection={<IconPlus size={14} />}>Start a run from it</Button>
        </>
      ) : undefined}
    >
      <span className={classes.lead}>
        <StatusBadge status={checkpoint.state} /> <CopyId id={checkpoint.id} />
        <span>of <Link to={`/runs/${checkpoint.run.id}?tab=checkpoints`}>{checkpoint.run.name}</Link></span>
        <Link to="/checkpoints">All checkpoints</Link>
      </span>
    </PageHeader>
  );
}

function LineageOf({ id }: { id: string }) {
  const { data, error, refetch } = useQuery(checkpointLineage(id));
  if (data === undefined) return error === null ? <Waiting /> : <ProblemNotice error={error} retry={() => void refetch()} />;
  return <LineageGraph lineage={data} focus={id} />;
}

/** What it is, and the names and the pin that keep it. */
function Summary({ checkpoint }: { checkpoint: Checkpoint }) {
  const maySet = useQuery(queries.me).data?.scopes.includes("checkpoints:write") ?? false;
  const dialog = useDialog<AliasDialog>();
  const client = useQueryClient();
  const pin = useMutation({
    mutationFn: () => patch("/api/v1/checkpoints/{checkpoint_id}", { path: { checkpoint_id: checkpoint.id }, body: { pinned: !checkpoint.pinned } }),
    onSuccess: (changed) => client.setQueryData(checkpointQuery(checkpoint.id).queryKey, changed),
    onSettled: () => void client.invalidateQueries({ queryKey: CHECKPOINTS }),
  });
  const canChange = maySet && checkpoint.state !== "DELETED";
  return (
    <Panel title="Summary" aside={canChange && <Button variant="default" leftSection={<IconBookmark size={13} />} onClick={() => dialog.show({ kind: "set", name: "", checkpoint: checkpoint.id })}>Set an alias</Button>}>
      <div className={classes.stack}>
        <Facts>
          <Fact label="Kind" help="training: its run resumes from it, and others start with its weights. weights: others start with it">{checkpoint.kind}</Fact>
          <Fact label="Holds" help="A model has all weights. A LoRA adapter needs the model that it was trained on: runs that start from it merge both">{checkpoint.content === "adapter" ? "a LoRA adapter" : "a model"}</Fact>
          {checkpoint.base !== null && <Fact label="Adapter for">{checkpoint.base.kind === "checkpoint" ? <Link to={checkpointPath(checkpoint.base.id)}>{checkpoint.base.name}</Link> : checkpoint.base.name}</Fact>}
          <Fact label="Policy version" help="The train step after which it was saved">{checkpoint.step}{checkpoint.final ? ", final" : ""}</Fact>
          <Fact label="Attempt">{checkpoint.attempt_number}</Fact>
          <Fact label="Size">{bytes(checkpoint.bytes)}</Fact>
          <Fact label="Committed">{moment(checkpoint.created_at)}</Fact>
          {checkpoint.stored_at !== null && <Fact label="Stored">{moment(checkpoint.stored_at)}</Fact>}
          {checkpoint.deleted_at !== null && <Fact label="Deleted">{moment(checkpoint.deleted_at)}</Fact>}
          {checkpoint.parent !== null && <Fact label="Resumed from"><Link to={checkpointPath(checkpoint.parent)} className="mono">{checkpoint.parent}</Link></Fact>}
          <Fact label="SHA-256 of the manifest"><CopyId id={checkpoint.sha256} label={checkpoint.sha256.slice(0, 16)} /></Fact>
          {checkpoint.tar_sha256 !== "" && <Fact label="SHA-256 of the tar"><CopyId id={checkpoint.tar_sha256} label={checkpoint.tar_sha256.slice(0, 16)} /></Fact>}
        </Facts>
        <div className={classes.aliases} data-testid="aliases-here">
          {checkpoint.aliases.length === 0 ? "No alias points here." : <>Named by <AliasNames names={checkpoint.aliases} /></>}
        </div>
        <ProblemNotice error={pin.error} />
        <div className={classes.aliases}>
          {checkpoint.pinned ? "Pinned: retention never deletes it." : checkpoint.state === "DELETED" ? null : "Not pinned."}
          {canChange && <Button variant="default" leftSection={checkpoint.pinned ? <IconPinnedOff size={13} /> : <IconPin size={13} />} loading={pin.isPending} onClick={() => pin.mutate()}>{checkpoint.pinned ? "Unpin" : "Pin"}</Button>}
        </div>
      </div>
      <AliasDialogs shown={dialog.shown} showDialog={dialog.show} close={dialog.close} />
    </Panel>
  );
}

function Metrics({ metrics }: { metrics: Checkpoint["metrics"] }) {
  const all = orderedMetrics(metrics);
  return (
    <Panel title="Metrics" flush>
      {all.length === 0 ? <Empty title="No metrics">A checkpoint gets the metrics of its train step, and those of evaluations of it.</Empty> : (
        <Table className="tabular" data-testid="metrics">
          <Table.Tbody>{all.map(([name, value]) => <Table.Tr key={name}><Table.Td className="mono">{name}</Table.Td><Table.Td ta="right">{number(value, 4)}</Table.Td></Table.Tr>)}</Table.Tbody>
        </Table>
      )}
    </Panel>
  );
}

/** The card that an export writes as README.md, as text. */
function CardPanel({ id }: { id: string }) {
  const { data, error, refetch } = useQuery(modelCard(id));
  return (
    <Panel title="Model card" aside={data !== undefined && <CopyText text={data} label="Model card" />}>
      <ProblemNotice error={error} retry={() => void refetch()} />
      {data === undefined ? (error === null ? <Waiting /> : null) : <TextBlock text={data} label="Model card" />}
    </Panel>
  );
}
