import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { useLocation } from "react-router";

import * as queries from "../api/queries.ts";
import type { Me } from "../api/schema.d.ts";
import { ShortcutsTable } from "../app/shortcuts-table.tsx";
import { ago, moment, words } from "../common/format.ts";
import { Waiting } from "../common/notices.tsx";
import { Fact, Facts, PageHeader, Panel } from "../common/panel.tsx";
import { may } from "../common/permission.ts";
import classes from "./account.module.css";
import { DisplayPanel } from "./display-panel.tsx";
import { OwnTokens } from "./own-tokens.tsx";
import { ProjectsPanel } from "./projects-panel.tsx";

export function AccountPage() {
  const { data: me } = useQuery(queries.me);
  const { hash } = useLocation();
  useEffect(() => {
    if (hash === "#tokens") document.getElementById("tokens")?.scrollIntoView();
  }, [hash, me === undefined]);
  if (me === undefined) return <Waiting />;
  return (
    <>
      <PageHeader title="Account">Who you are here, your tokens, and how this browser shows the dashboard.</PageHeader>
      <div className={classes.page}>
        <div className={classes.column}>
          <WhoAmI me={me} />
          <ProjectsPanel me={me} />
          <OwnTokens me={me} />
        </div>
        <div className={classes.column}>
          <DisplayPanel />
          <Panel title="Keyboard shortcuts" flush><ShortcutsTable /></Panel>
        </div>
      </div>
    </>
  );
}

function WhoAmI({ me }: { me: Me }) {
  const rights = [may(me, "installation:admin") && "admin of the installation", may(me, "team:admin") && `admin of the team ${me.team.name}`, may(me, "pool:admin") && !may(me, "installation:admin") && "admin of a pool"].filter(Boolean);
  return (
    <Panel title="You">
      <Facts>
        <Fact label="Name">{me.user.username}</Fact>
        <Fact label="Project now">{me.team.name} / {me.project.name}</Fact>
        <Fact label="Role here" help="The higher of your roles in the project and in the team">{me.role}</Fact>
        <Fact label="Logged in with" help={me.login === null ? undefined : moment(me.login.at)}>{me.login === null ? "an earlier session" : `${words(me.login.how)}, ${ago(me.login.at)}`}</Fact>
        {rights.length > 0 && <Fact label="Also">{rights.join(", ")}</Fact>}
      </Facts>
    </Panel>
  );
}
