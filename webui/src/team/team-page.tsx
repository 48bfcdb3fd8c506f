import "@mantine/core/styles/Tabs.css";
import { Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, type ComponentType } from "react";
import { useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { Me } from "../api/schema.d.ts";
import { Empty, Waiting } from "../common/notices.tsx";
import { PageHeader } from "../common/panel.tsx";
import { PendingPage } from "../common/pending-page.tsx";
import { may } from "../common/permission.ts";
import { MembersTab } from "./members-tab.tsx";
import classes from "./team.module.css";

export type TabProps = { me: Me };

/** `scope`: what a caller needs to see the tab. */
type TeamTab = { name: string; label: string; scope: string; content: ComponentType<TabProps> };

const TABS: readonly TeamTab[] = [
  { name: "members", label: "Members", scope: "members:read", content: MembersTab },
  { name: "invitations", label: "Invitations", scope: "members:admin", content: lazy(async () => ({ default: (await import("./invitations-tab.tsx")).InvitationsTab })) },
  { name: "service-accounts", label: "Service accounts", scope: "members:read", content: lazy(async () => ({ default: (await import("./service-accounts-tab.tsx")).ServiceAccountsTab })) },
  { name: "secrets", label: "Secrets", scope: "secrets:read", content: lazy(async () => ({ default: (await import("./secrets-tab.tsx")).SecretsTab })) },
  { name: "webhooks", label: "Webhooks", scope: "webhooks:admin", content: lazy(async () => ({ default: (await import("./webhooks-tab.tsx")).WebhooksTab })) },
  { name: "audit", label: "Audit", scope: "audit:read", content: lazy(async () => ({ default: (await import("./audit-tab.tsx")).AuditTab })) },
];

export function TeamPage() {
  const [search, setSearch] = useSearchParams();
  const { data: me } = useQuery(queries.me);
  if (me === undefined) return <PendingPage title="Team" error={null} />;
  const name = search.get("tab") ?? "members";
  const tab = TABS.find((one) => one.name === name);
  return (
    <>
      <PageHeader title="Team">Who works in {me.team.name} / {me.project.name}, with what rights, and what happened here.</PageHeader>
      <Tabs value={name} keepMounted={false} classNames={{ tab: classes.tab, list: classes.tabs }} onChange={(value) => setSearch(value === null || value === "members" ? {} : { tab: value })}>
        <Tabs.List aria-label="Parts of the team">
          {TABS.filter(({ scope }) => may(me, scope)).map(({ name: value, label }) => <Tabs.Tab key={value} value={value}>{label}</Tabs.Tab>)}
        </Tabs.List>
        {tab !== undefined && may(me, tab.scope) && <Tabs.Panel value={tab.name} pt={12}><Suspense fallback={<Waiting />}><tab.content me={me} /></Suspense></Tabs.Panel>}
      </Tabs>
      {tab === undefined && <Empty title="There is no such tab">The link may be incomplete.</Empty>}
      {tab !== undefined && !may(me, tab.scope) && <Empty title="This tab is for admins of the project">Your role in {me.project.name} is {me.role}. Ask an admin of the project.</Empty>}
    </>
  );
}
