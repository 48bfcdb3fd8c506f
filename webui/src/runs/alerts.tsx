import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import { ago, moment } from "../common/format.ts";
import { StatusBadge } from "../common/status.tsx";
import classes from "./alerts.module.css";
import { hasEnded } from "./ended.ts";

const ORDER = ["critical", "warning", "info"];

/** Open alerts of an active run, most severe first, each with advice. Brief: their titles in one line. */
export function Alerts({ run, isBrief = false }: { run: Run; isBrief?: boolean }) {
  const { data } = useQuery({ ...queries.runAlerts(run.id), enabled: !hasEnded(run.status) });
  const open = [...(data?.data ?? [])].sort((one, other) => ORDER.indexOf(one.severity) - ORDER.indexOf(other.severity));
  if (hasEnded(run.status) || open.length === 0) return null;
  if (isBrief) {
    return (
      <div className={classes.brief} role="status" data-testid="alerts-brief">
        <StatusBadge status={open[0]!.severity} /> <span>{open.map(({ title }) => title).join(" · ")}</span> <Link to="?">Advice</Link>
      </div>
    );
  }
  return (
    <div className={classes.alerts} data-testid="alerts">
      {open.map((alert) => (
        <div key={alert.id} data-rule={alert.rule} data-severity={alert.severity} role={alert.severity === "critical" ? "alert" : "status"}>
          <StatusBadge status={alert.severity} />
          <strong>{alert.title}</strong>
          <span>{alert.message}.</span>
          <span className={classes.advice}>{alert.advice}</span>
          <span className={classes.since} title={moment(alert.opened_at)}>since step {alert.train_step}, {ago(alert.opened_at)}</span>
        </div>
      ))}
    </div>
  );
}
