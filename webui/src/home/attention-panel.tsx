import { IconCircleCheck } from "@tabler/icons-react";
import { Link } from "react-router";

import { ago, moment } from "../common/format.ts";
import { Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useNow } from "../common/use-now.ts";
import { ATTENTION } from "../runs/run-list-view.ts";
import { FAILED_DAYS, type Item } from "./attention.ts";
import classes from "./home-page.module.css";

/** Runs with errors or alerts, recent failures, and runs that wait, each with its reason. */
export function AttentionPanel({ items, hasMore }: { items: Item[]; hasMore: boolean }) {
  const now = useNow(30_000);
  return (
    <Panel title="Needs attention" aside={items.length === 0 ? undefined : items.length} flush>
      {items.length === 0 ? (
        <p className={classes.calm} data-testid="calm"><IconCircleCheck size={17} aria-hidden /> No open alerts, no failures in the last {FAILED_DAYS} days, and nothing waits.</p>
      ) : (
        <ul className={classes.list} data-testid="attention">
          {items.map((item) => (
            <li key={item.key} className={classes.item} data-badge={item.badge} data-run={item.run.id}>
              <span className={classes.badge}><StatusBadge status={item.badge} /></span>
              <Link className={classes.name} to={`/runs/${item.run.id}`} title={item.run.name}>{item.run.name}</Link>
              <span className={`${classes.since} tabular`} title={moment(item.at)}>{ago(item.at, now)}</span>
              <div className={classes.text}>
                <p title={item.text}>{item.text}</p>
                {item.advice !== "" && <p className={classes.advice} title={item.advice}>{item.advice}</p>}
              </div>
            </li>
          ))}
        </ul>
      )}
      {hasMore && (
        <div className={classes.more}>
          Not all are shown. See runs that <Link to={`/runs?condition=${ATTENTION}`}>need attention</Link>, <Link to="/runs?status=FAILED&sort=-ended">failed</Link> or <Link to="/runs?status=QUEUED">wait</Link>.
        </div>
      )}
    </Panel>
  );
}
