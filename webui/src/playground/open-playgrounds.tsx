import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { ago } from "../common/format.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import classes from "./playground.module.css";
import { playgrounds } from "./playground-queries.ts";

/** The playgrounds of the project that hold or wait for slots. Absent when there is none. */
export function OpenPlaygrounds() {
  const { data, error, refetch } = useQuery(playgrounds);
  const open = (data?.data ?? []).filter((one) => one.open);
  if (error !== null && data === undefined) return <ProblemNotice error={error} retry={() => void refetch()} />;
  if (open.length === 0) return null;
  return (
    <Panel title="Open now" flush>
      <ul className={classes.open} data-testid="open-playgrounds">
        {open.map((one) => (
          <li key={one.id}>
            <Link to={`/playground?id=${one.id}`}>{one.sides.map(({ model }) => model.name).join(" and ")}</Link>
            <span>{one.created_by}, {ago(one.created_at)}</span>
            <StatusBadge status={one.sides[0]?.status ?? "QUEUED"} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}
