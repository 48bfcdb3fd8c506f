import "@mantine/core/styles/Code.css";
import { Button, Code, CopyButton, Group, SegmentedControl, Stack, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { post } from "../api/http.ts";
import { moment } from "../common/format.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { joinCommand, type Device } from "./join-command.ts";

/** Creates a join token and shows the command to type on the node. */
export function AddNode({ pool }: { pool: string }) {
  const [device, setDevice] = useState<Device>("cuda");
  const create = useMutation({ mutationFn: () => post("/api/v1/pools/{pool_name}/join-tokens", { path: { pool_name: pool } }) });
  const command = create.data === undefined ? "" : joinCommand(create.data.token, device, window.location.origin);
  return (
    <Stack gap="sm">
      <ProblemNotice error={create.error} />
      <Text size="sm">A node joins pool {pool} with a token that works once. It receives the data and secrets of the jobs scheduled on it. Its agent only opens outbound connections to this address.</Text>
      <SegmentedControl aria-label="Devices of the node" value={device} onChange={(value) => setDevice(value as Device)} data={[{ value: "cuda", label: "NVIDIA GPUs" }, { value: "cpu", label: "CPU only" }]} />
      <Text size="sm">On the node, in a checkout of Oolong, run <code className="mono">python3 manage.py setup --device {device}</code> first, then this command:</Text>
      {create.data === undefined ? <Group><Button loading={create.isPending} onClick={() => create.mutate()}>Create join token</Button></Group> : (
        <>
          <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }} data-testid="join-command">{command}</Code>
          <Group justify="space-between">
            <Text size="xs" c="dimmed">Valid until {moment(create.data.expires_at)}. It is shown once.</Text>
            <CopyButton value={command}>{({ copied, copy }) => <Button variant="default" onClick={copy}>{copied ? "Copied" : "Copy"}</Button>}</CopyButton>
          </Group>
        </>
      )}
    </Stack>
  );
}
