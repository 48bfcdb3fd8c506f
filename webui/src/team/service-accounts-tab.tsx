import { Button, Group, Menu, Table, Text } from "@mantine/core";
import { IconDots, IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery } from "@tanstack/react-query";

import { post, remove } from "../api/http.ts";
import { serviceAccounts as accountsQuery, tokens as tokensQuery } from "../api/team-queries.ts";
import type { ServiceAccount } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { ago, moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { may } from "../common/permission.ts";
import { useDialog } from "../common/use-dialog.ts";
import { NewToken } from "../tokens/new-token.tsx";
import { TokensTable } from "../tokens/tokens-table.tsx";
import { NewServiceAccount, ServiceAccountRole } from "./service-account-dialogs.tsx";
import type { TabProps } from "./team-page.tsx";
import { MEANINGS } from "./roles.ts";
import classes from "./team.module.css";

type Dialog = { kind: "new" } | { kind: "role" | "token" | "delete"; account: ServiceAccount };

export function ServiceAccountsTab({ me }: TabProps) {
  const query = useInfiniteQuery(accountsQuery);
  const { shown, show, close } = useDialog<Dialog>();
  const mayManage = may(me, "members:admin");
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  const newButton = mayManage ? <Button onClick={() => show({ kind: "new" })} leftSection={<IconPlus size={14} />}>New service account</Button> : undefined;
  return (
    <div className={classes.stack}>
      <div className={classes.tools} style={{ margin: 0 }}>
        <p className={classes.lead}>For pipelines: an account with a role in {me.project.name} and tokens, without a password. Its tokens remain valid when people leave.</p>
        {list.length > 0 && newButton}
      </div>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <Panel title="Service accounts" flush>
        {query.isPending ? <Waiting label="Loading service accounts" /> : query.data === undefined ? null : list.length === 0 ? (
          <Empty title="No service accounts yet" action={newButton}>{mayManage ? "Create one for a pipeline, then give it a token." : `Admins of the project create them. Your role here is ${me.role}.`}</Empty>
        ) : (
          <Table className="tabular" data-testid="service-accounts">
            <Table.Thead><Table.Tr><Table.Th>Name</Table.Th><Table.Th>Role</Table.Th><Table.Th ta="right">Live tokens</Table.Th><Table.Th className={classes.wide}>Created</Table.Th><Table.Td /></Table.Tr></Table.Thead>
            <Table.Tbody>
              {list.map((account) => (
                <Table.Tr key={account.id}>
                  <Table.Td className={classes.name}>{account.name}</Table.Td>
                  <Table.Td title={MEANINGS[account.role]}>{account.role}</Table.Td>
                  <Table.Td ta="right">{account.tokens}</Table.Td>
                  <Table.Td className={classes.wide} title={moment(account.created_at)}>{ago(account.created_at)}</Table.Td>
                  <Table.Td>{mayManage && <Actions account={account} onAct={(kind) => show({ kind, account })} />}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
        <More query={query} />
      </Panel>
      {mayManage && list.length > 0 && <AccountTokens accounts={list} />}
      {shown?.kind === "new" && <NewServiceAccount me={me} onClose={close} />}
      {shown?.kind === "role" && <ServiceAccountRole me={me} account={shown.account} onClose={close} />}
      {shown?.kind === "token" && (
        <NewToken title={`New token of ${shown.account.name}`} available={me.scopes} allLabel={`All that the role of ${shown.account.name} allows, also after the role changes`} onClose={close}
          create={(body) => post("/api/v1/service-accounts/{service_account_id}/tokens", { path: { service_account_id: shown.account.id }, body })} />
      )}
      {shown?.kind === "delete" && (
        <Confirm title={`Delete ${shown.account.name}?`} action="Delete" changes={[accountsQuery.queryKey, ["tokens"]]} onClose={close}
          run={() => remove("/api/v1/service-accounts/{service_account_id}", { path: { service_account_id: shown.account.id } })}>
          {shown.account.tokens === 0 ? "It has no live tokens." : `Its ${shown.account.tokens} live token${shown.account.tokens === 1 ? "" : "s"} stop${shown.account.tokens === 1 ? "s" : ""} working at once, for good.`} Runs that it started continue, and what it made stays.
        </Confirm>
      )}
    </div>
  );
}

function Actions({ account, onAct }: { account: ServiceAccount; onAct: (kind: "role" | "token" | "delete") => void }) {
  return (
    <Group gap={4} justify="flex-end" wrap="nowrap">
      <Button variant="subtle" px={8} aria-label={`New token of ${account.name}`} onClick={() => onAct("token")}>New token</Button>
      <Menu position="bottom-end" width={200}>
        <Menu.Target><Button variant="subtle" color="gray" px={6} aria-label={`Actions on ${account.name}`}><IconDots size={15} /></Button></Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => onAct("role")}>Change the role</Menu.Item>
          <Menu.Item color="red" onClick={() => onAct("delete")}>Delete</Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </Group>
  );
}

/** The tokens of the accounts, which admins rotate and revoke. */
function AccountTokens({ accounts }: { accounts: ServiceAccount[] }) {
  const query = useInfiniteQuery(tokensQuery(true));
  const ids = new Set(accounts.map(({ id }) => id));
  const list = (query.data?.pages.flatMap((page) => page.data) ?? []).filter((token) => ids.has(token.owner_id));
  return (
    <Panel title="Their tokens" flush>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.isPending ? <Waiting label="Loading tokens" /> : list.length === 0 ? <Text className={classes.note}>No live tokens. A token is shown once, when you create it.</Text> : <TokensTable tokens={list} mayRotate={() => true} withOwner />}
      <More query={query} />
    </Panel>
  );
}
