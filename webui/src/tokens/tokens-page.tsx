import "@mantine/core/styles/Alert.css";
import "@mantine/core/styles/SimpleGrid.css";
import "@mantine/core/styles/Code.css";
import { Alert, Button, Checkbox, Code, CopyButton, Group, Modal, Select, SimpleGrid, Table, Text, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconPlus } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post, remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Token } from "../api/schema.d.ts";
import { ago, moment } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { PageHeader, Panel } from "../common/panel.tsx";

export function TokensPage() {
  const { data, error, isPending, refetch } = useQuery(queries.tokens);
  const [isOpen, { open, close }] = useDisclosure(false);
  const [revoked, setRevoked] = useState<Token | null>(null);
  const list = data?.data ?? [];
  return (
    <>
      <PageHeader title="Tokens" aside={<Button onClick={open} leftSection={<IconPlus size={14} />}>New token</Button>}>
        For the command line, the SDK and CI. A token grants its scopes in this project only.
      </PageHeader>
      <ProblemNotice error={error} retry={() => void refetch()} />
      <Panel flush>
        {isPending ? <Waiting /> : data === undefined ? null : list.length === 0 ? (
          <Empty title="No tokens yet" action={<Button onClick={open}>New token</Button>}>A token is shown once, when you create it. Only its hash is stored.</Empty>
        ) : (
          <Table className="tabular" data-testid="tokens">
            <Table.Thead><Table.Tr><Table.Th>Name</Table.Th><Table.Th>Prefix</Table.Th><Table.Th>Scopes</Table.Th><Table.Th>Created</Table.Th><Table.Th>Expires</Table.Th><Table.Th>Last used</Table.Th><Table.Td /></Table.Tr></Table.Thead>
            <Table.Tbody>
              {list.map((token) => (
                <Table.Tr key={token.id}>
                  <Table.Td fw={580}>{token.name}</Table.Td>
                  <Table.Td className="mono">{token.prefix}…</Table.Td>
                  <Table.Td>{token.scopes.join(", ")}</Table.Td>
                  <Table.Td title={moment(token.created_at)}>{ago(token.created_at)}</Table.Td>
                  <Table.Td>{token.expires_at === null ? "never" : moment(token.expires_at)}</Table.Td>
                  <Table.Td>{token.last_used_at === null ? "never" : ago(token.last_used_at)}</Table.Td>
                  <Table.Td ta="right"><Button variant="subtle" color="red" onClick={() => setRevoked(token)}>Revoke</Button></Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
      </Panel>
      <Modal opened={isOpen} onClose={close} title="New token" size="lg"><NewToken onDone={close} /></Modal>
      <Revoke token={revoked} onDone={() => setRevoked(null)} />
    </>
  );
}

function NewToken({ onDone }: { onDone: () => void }) {
  const { data: me } = useQuery(queries.me);
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<string[]>([]);
  const [days, setDays] = useState<string | null>("30");
  const client = useQueryClient();
  const create = useMutation({
    mutationFn: () => post("/api/v1/tokens", {
      body: { name, scopes, expires_at: days === "never" || days === null ? null : new Date(Date.now() + Number(days) * 86_400_000).toISOString() },
    }),
    onSuccess: () => void client.invalidateQueries({ queryKey: queries.tokens.queryKey }),
  });
  if (create.data !== undefined) {
    return (
      <div style={{ display: "grid", gap: 12 }}>
        <Alert color="yellow" title="Copy it now">This token is not shown again. Anyone who has it can use its scopes.</Alert>
        <Code block style={{ overflowWrap: "anywhere" }} data-testid="new-token">{create.data.token}</Code>
        <Group justify="flex-end" gap={8}>
          <CopyButton value={create.data.token}>{({ copied, copy }) => <Button variant="default" onClick={copy}>{copied ? "Copied" : "Copy"}</Button>}</CopyButton>
          <Button onClick={onDone}>Done</Button>
        </Group>
      </div>
    );
  }
  return (
    <div style={{ display: "grid", gap: 12 }}>
      <ProblemNotice error={create.error} />
      <Group grow>
        <TextInput label="Name" description="user or purpose of the token" required data-autofocus value={name} onChange={(event) => setName(event.currentTarget.value)} />
        <Select label="Expires" description="the token stops working then" value={days} onChange={setDays} data={[{ value: "7", label: "in 7 days" }, { value: "30", label: "in 30 days" }, { value: "90", label: "in 90 days" }, { value: "never", label: "never" }]} />
      </Group>
      <Checkbox.Group label="Scopes" description="select only what the token needs" required value={scopes} onChange={setScopes}>
        <SimpleGrid cols={3} mt={8} spacing={6}>{(me?.scopes ?? []).map((scope) => <Checkbox key={scope} size="xs" value={scope} label={scope} />)}</SimpleGrid>
      </Checkbox.Group>
      <Group justify="flex-end"><Button disabled={name === "" || scopes.length === 0} loading={create.isPending} onClick={() => create.mutate()}>Create token</Button></Group>
    </div>
  );
}

function Revoke({ token, onDone }: { token: Token | null; onDone: () => void }) {
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: (id: string) => remove("/api/v1/tokens/{token_id}", { path: { token_id: id } }),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: queries.tokens.queryKey });
      onDone();
    },
  });
  return (
    <Modal opened={token !== null} onClose={onDone} title={`Revoke ${token?.name ?? ""}?`}>
      <ProblemNotice error={revoke.error} />
      <Text size="sm" mb="md">Requests with this token fail from now on. Runs that it started continue.</Text>
      <Group justify="flex-end" gap={8}>
        <Button variant="default" onClick={onDone} data-autofocus>Cancel</Button>
        <Button color="red" loading={revoke.isPending} onClick={() => token !== null && revoke.mutate(token.id)}>Revoke</Button>
      </Group>
    </Modal>
  );
}
