import "@mantine/core/styles/Tabs.css";
import { Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import { Empty } from "../common/notices.tsx";
import { PageHeader } from "../common/panel.tsx";
import { PendingPage } from "../common/pending-page.tsx";
import { may } from "../common/permission.ts";
import classes from "./admin.module.css";
import { HealthTab } from "./health-tab.tsx";
import { PoolsTab } from "./pools-tab.tsx";
import { TeamsTab } from "./teams-tab.tsx";

const TABS = [
  { name: "pools", label: "Pools and quotas", scope: "pool:admin" },
  { name: "teams", label: "Teams and projects", scope: "installation:admin" },
  { name: "health", label: "Health", scope: "installation:admin" },
];

/** For admins of the installation, and for admins of a pool, who see their pools only. */
export function AdminPage() {
  const [search, setSearch] = useSearchParams();
  const { data: me } = useQuery(queries.me);
  if (me === undefined) return <PendingPage title="Admin" error={null} />;
  const name = search.get("tab") ?? "pools";
  const tab = TABS.find((one) => one.name === name && may(me, one.scope));
  return (
    <>
      <PageHeader title="Admin">{may(me, "installation:admin") ? "The pools, teams and services of this installation." : "The pools that you manage."}</PageHeader>
      {tab === undefined ? (
        <Empty title="This page is for admins">{TABS.some((one) => one.name === name) ? "Admins of the installation and of pools manage them here. An admin of the installation can appoint you." : "There is no such tab. The link may be incomplete."}</Empty>
      ) : (
        <Tabs value={name} keepMounted={false} classNames={{ tab: classes.tab, list: classes.tabs }} onChange={(value) => setSearch(value === null || value === "pools" ? {} : { tab: value })}>
          <Tabs.List aria-label="Parts of the administration">{TABS.filter(({ scope }) => may(me, scope)).map(({ name: value, label }) => <Tabs.Tab key={value} value={value}>{label}</Tabs.Tab>)}</Tabs.List>
          <Tabs.Panel value="pools" pt={12}><PoolsTab me={me} /></Tabs.Panel>
          <Tabs.Panel value="teams" pt={12}><TeamsTab me={me} /></Tabs.Panel>
          <Tabs.Panel value="health" pt={12}><HealthTab /></Tabs.Panel>
        </Tabs>
      )}
    </>
  );
}
