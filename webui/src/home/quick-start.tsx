import { Button, CopyButton } from "@mantine/core";
import { Link } from "react-router";

import type { Me, Run } from "../api/schema.d.ts";
import { Panel } from "../common/panel.tsx";
import { readOnlyReason } from "../common/permission.ts";
import { cliSnippet } from "./cli-snippet.ts";
import classes from "./home-page.module.css";

/** What one starts from here, in the browser and on the command line. */
export function QuickStart({ me, newestRun }: { me: Me; newestRun: Run }) {
  const readOnly = readOnlyReason(me.role);
  return (
    <Panel title="Quick start">
      {readOnly === null ? (
        <div className={classes.actions}>
          <Button component={Link} to="/runs/new">Start a run</Button>
          <Button component={Link} to={`/runs/new?from=${newestRun.id}`} variant="default" title={newestRun.name}>Start another like the newest</Button>
          <Button component={Link} to="/datasets/new" variant="default">Upload a dataset</Button>
        </div>
      ) : <span className={classes.since}>{readOnly}</span>}
      <details className={classes.cli}>
        <summary>From the command line</summary>
        <Snippet me={me} newestRun={newestRun} />
      </details>
    </Panel>
  );
}

/** Commands with the address and the names of the project, and a button that copies them. */
export function Snippet({ me, newestRun }: { me: Me; newestRun?: Run }) {
  const text = cliSnippet({ origin: window.location.origin, team: me.team.name, project: me.project.name, ...(newestRun === undefined ? {} : { newestRun }) });
  return (
    <div className={classes.code} data-testid="cli">
      <pre tabIndex={0} aria-label="Commands">{text}</pre>
      <CopyButton value={text}>{({ copied, copy }) => <Button variant="default" onClick={copy}>{copied ? "Copied" : "Copy"}</Button>}</CopyButton>
    </div>
  );
}
