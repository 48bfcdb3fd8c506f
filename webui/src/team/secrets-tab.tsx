import { Button, Group, Menu, Table } from "@mantine/core";
import { IconDots, IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery } from "@tanstack/react-query";

import { secrets as secretsQuery } from "../api/team-queries.ts";
import type { Secret } from "../api/schema.d.ts";
import { ago, moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { may } from "../common/permission.ts";
import { useDialog } from "../common/use-dialog.ts";
import { DeleteSecret, SecretRuns, SetSecret } from "./secret-dialogs.tsx";
import type { TabProps } from "./team-page.tsx";
import classes from "./team.module.css";

type Dialog = { kind: "new" } | { kind: "replace" | "delete" | "runs"; secret: Secret };

export function SecretsTab({ me }: TabProps) {
  const query = useInfiniteQuery(secretsQuery);
  const { shown, show, close } = useDialog<Dialog>();
  const mayWrite = may(me, "secrets:write");
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  const newButton = mayWrite ? <Button onClick={() => show({ kind: "new" })} leftSection={<IconPlus size={14} />}>Set a secret</Button> : undefined;
  return (
    <>
      <div className={classes.tools}>
        <p className={classes.lead}>Keys for jobs and imports. Nobody reads a value back: only the jobs and hosts that an admin names get it. <a href="/docs/how-to/secrets" target="_blank" rel="noreferrer">How to give a job a secret</a></p>
        {list.length > 0 && newButton}
      </div>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <Panel title="Secrets" flush>
        {query.isPending ? <Waiting label="Loading secrets" /> : query.data === undefined ? null : list.length === 0 ? (
          <Empty title="No secrets yet" action={newButton}>{mayWrite ? "A tracker's key for a loss of yours, or a token for a model hub." : `Admins of the project set them. Your role here is ${me.role}.`}</Empty>
        ) : (
          <Table className="tabular" data-testid="secrets">
            <Table.Thead><Table.Tr><Table.Th>Name</Table.Th><Table.Th>Who may use it</Table.Th><Table.Th>Last used</Table.Th><Table.Th className={classes.wide}>Set</Table.Th><Table.Th className={classes.wide} title="Changes with the value, and says nothing about it">Fingerprint</Table.Th><Table.Td /></Table.Tr></Table.Thead>
            <Table.Tbody>
              {list.map((secret) => (
                <Table.Tr key={secret.name}>
                  <Table.Td className={`${classes.name} mono`}>{secret.name}</Table.Td>
                  <Table.Td><Users secret={secret} /></Table.Td>
                  <Table.Td title={secret.last_used_at === null ? undefined : moment(secret.last_used_at)}>{secret.last_used_at === null ? "never" : ago(secret.last_used_at)}</Table.Td>
                  <Table.Td className={classes.wide} title={moment(secret.updated_at)}>{ago(secret.updated_at)}</Table.Td>
                  <Table.Td className={`${classes.wide} mono`}>{secret.fingerprint}</Table.Td>
                  <Table.Td>
                    <Group gap={4} justify="flex-end" wrap="nowrap">
                      <Button variant="subtle" px={8} aria-label={`Runs that name ${secret.name}`} onClick={() => show({ kind: "runs", secret })}>Runs</Button>
                      {mayWrite && (
                        <Menu position="bottom-end" width={180}>
                          <Menu.Target><Button variant="subtle" color="gray" px={6} aria-label={`Actions on ${secret.name}`}><IconDots size={15} /></Button></Menu.Target>
                          <Menu.Dropdown>
                            <Menu.Item onClick={() => show({ kind: "replace", secret })}>Replace</Menu.Item>
                            <Menu.Item color="red" onClick={() => show({ kind: "delete", secret })}>Delete</Menu.Item>
                          </Menu.Dropdown>
                        </Menu>
                      )}
                    </Group>
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
        <More query={query} />
      </Panel>
      {shown?.kind === "new" && <SetSecret onClose={close} />}
      {shown?.kind === "replace" && <SetSecret secret={shown.secret} onClose={close} />}
      {shown?.kind === "delete" && <DeleteSecret secret={shown.secret} onClose={close} />}
      {shown?.kind === "runs" && <SecretRuns secret={shown.secret} onClose={close} />}
    </>
  );
}

function Users({ secret: { jobs, hosts } }: { secret: Secret }) {
  if (jobs.length === 0 && hosts.length === 0) return <span className={classes.soft}>nobody</span>;
  return <div className={classes.chips}>{[...jobs.map((job) => `${job} of a run`), ...hosts.map((host) => `imports from ${host}`)].map((user) => <span key={user} className={classes.chip}>{user}</span>)}</div>;
}
