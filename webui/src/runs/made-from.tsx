import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import * as queries from "../api/queries.ts";

const SHOWN = 3;

/** The runs that were made from this one, newest first: clones, forks from its checkpoints, and retries. */
export function MadeFrom({ runId }: { runId: string }) {
  const page = useInfiniteQuery(queries.runs({ parent: runId }, SHOWN + 1)).data?.pages[0];
  if (page === undefined || page.data.length === 0) return null;
  const shown = page.data.slice(0, SHOWN);
  return (
    <span data-testid="made-from">
      made from it: {shown.map(({ id, name, parent }, index) => (
        <span key={id}>{index > 0 && ", "}{parent?.relation} <Link to={`/runs/${id}`}>{name}</Link></span>
      ))}
      {page.data.length > shown.length && <>, <Link to={`/runs?parent=${runId}`}>all</Link></>}
    </span>
  );
}
