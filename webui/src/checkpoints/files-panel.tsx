import { Button, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { checkpointFiles } from "../api/checkpoint-queries.ts";
import type { Checkpoint } from "../api/schema.d.ts";
import { CopyId } from "../common/copy-id.tsx";
import { bytes, DASH, grouped } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";

const FIRST_FILES = 50; // a sharded state of a large run has thousands

export function FilesPanel({ checkpoint }: { checkpoint: Checkpoint }) {
  const isStored = checkpoint.state === "STORED";
  const { data, error, isPending, refetch } = useQuery({ ...checkpointFiles(checkpoint.id), enabled: isStored });
  const [limit, setLimit] = useState(FIRST_FILES);
  const files = data?.files ?? [];
  return (
    <Panel title="Files" aside={data !== undefined && `${grouped(files.length)} ${files.length === 1 ? "file" : "files"}, ${bytes(data.bytes)} as tar`} flush>
      <ProblemNotice error={error} retry={() => void refetch()} />
      {!isStored ? <Empty title={checkpoint.state === "DELETED" ? "The files were deleted" : "Only on its node so far"}>{checkpoint.state === "DELETED" ? "Retention deleted the bytes. The metrics and the lineage stay." : "The files are listed when the node has uploaded the checkpoint and its state is Stored."}</Empty>
        : isPending ? <Waiting /> : data === undefined ? null : files.length === 0 ? <Empty title="No files">The stored archive lists no files.</Empty> : (
          <>
            <Table className="tabular" data-testid="files" style={{ minWidth: 440 }}>
              <Table.Thead><Table.Tr><Table.Th>Name</Table.Th><Table.Th ta="right">Size</Table.Th><Table.Th>SHA-256</Table.Th></Table.Tr></Table.Thead>
              <Table.Tbody>
                {files.slice(0, limit).map((file) => (
                  <Table.Tr key={file.name}>
                    <Table.Td className="mono" style={{ overflowWrap: "anywhere" }}>{file.name}</Table.Td>
                    <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>{bytes(file.bytes)}</Table.Td>
                    <Table.Td>{file.sha256 === "" ? <span title="The manifest lists the hashes of the other files">{DASH}</span> : <CopyId id={file.sha256} label={file.sha256.slice(0, 12)} />}</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
            {files.length > limit && <div style={{ padding: 10, textAlign: "center" }}><Button variant="default" onClick={() => setLimit(limit * 10)}>Show {grouped(files.length - limit)} more</Button></div>}
          </>
        )}
    </Panel>
  );
}
