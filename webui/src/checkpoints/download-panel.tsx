import { Button, Group, Select, Text } from "@mantine/core";
import { IconDownload, IconLink } from "@tabler/icons-react";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { checkpointFiles } from "../api/checkpoint-queries.ts";
import { post, urlOf } from "../api/http.ts";
import type { Checkpoint } from "../api/schema.d.ts";
import { bytes, moment } from "../common/format.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { CodeBlock } from "./code-block.tsx";
import classes from "./checkpoint-page.module.css";
import { exportCommands, linkCommand } from "./export-command.ts";

const LIFETIMES = [{ value: "3600", label: "for 1 hour" }, { value: "86400", label: "for 1 day" }, { value: "604800", label: "for 7 days" }];

/** The ways out: a model directory by the command line, the archive by the browser, and a signed link. */
export function DownloadPanel({ checkpoint }: { checkpoint: Checkpoint }) {
  const isStored = checkpoint.state === "STORED";
  const files = useQuery({ ...checkpointFiles(checkpoint.id), enabled: isStored }).data?.files;
  const [seconds, setSeconds] = useState("3600");
  const link = useMutation({ mutationFn: () => post("/api/v1/checkpoints/{checkpoint_id}/links", { path: { checkpoint_id: checkpoint.id }, body: { expires_in_seconds: Number(seconds) } }) });
  if (!isStored) return null;
  const commands = files === undefined ? [] : exportCommands(checkpoint, files);
  return (
    <Panel title="Download and export">
      <div className={classes.stack}>
        {files !== undefined && commands.length === 0 && <Text size="sm" c="dimmed">It holds neither a model nor an adapter, so there is nothing to export.</Text>}
        {commands.map(({ command, about }) => (
          <div key={command} data-testid="export">
            <Text size="xs" c="dimmed" mb={4}>{about}</Text>
            <CodeBlock text={command} label="Export command" />
          </div>
        ))}
        <Group gap={8}>
          <Button component="a" href={urlOf("/api/v1/checkpoints/{checkpoint_id}/download", { checkpoint_id: checkpoint.id })} download variant="default" leftSection={<IconDownload size={14} />}>Download the tar, {bytes(checkpoint.bytes)}</Button>
        </Group>
        <Group gap={8}>
          <Select aria-label="Lifetime of the link" w={120} allowDeselect={false} data={LIFETIMES} value={seconds} onChange={(value) => setSeconds(value ?? "3600")} />
          <Button variant="default" leftSection={<IconLink size={14} />} loading={link.isPending} onClick={() => link.mutate()}>Create a link</Button>
        </Group>
        <ProblemNotice error={link.error} />
        {link.data !== undefined && (
          <div data-testid="link">
            <Text size="xs" c="dimmed" mb={4}>Works without a token until {moment(link.data.expires_at)}, and ends when you lose access. The command resumes when you repeat it.</Text>
            <CodeBlock text={linkCommand(checkpoint, link.data.url, link.data.sha256)} label="Link command" />
          </div>
        )}
      </div>
    </Panel>
  );
}
