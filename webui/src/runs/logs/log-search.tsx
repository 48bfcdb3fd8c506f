import { Button } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";

import * as queries from "../../api/queries.ts";
import type { FoundLine, LogFile } from "../../api/schema.d.ts";
import { bytes, grouped, timeOfDay } from "../../common/format.ts";
import { ProblemNotice, Waiting } from "../../common/notices.tsx";
import classes from "./logs-tab.module.css";

type Props = { runId: string; file: LogFile; text: string; level: string; onOpen: (line: FoundLine) => void };

/** What the server finds in the whole log of a job, also in parts that are not in the page. */
export function LogSearch({ runId, file, text, level, onOpen }: Props) {
  const query = useInfiniteQuery(queries.logSearch(runId, { q: text, level, job: file.job }));
  const pages = query.data?.pages ?? [];
  const found = pages.flatMap((page) => page.data).filter((line) => line.incarnation === file.incarnation);
  const scanned = pages.reduce((sum, page) => sum + page.scanned_bytes, 0);
  return (
    <section className={classes.found} aria-label="Found lines" data-testid="found">
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.isPending ? <Waiting label="Searching" /> : query.data === undefined ? null : (
        <>
          <p className={classes.summary} role="status">
            {grouped(found.length)} {found.length === 1 ? "line" : "lines"} found in {bytes(scanned)}{query.hasNextPage ? " searched so far" : ""}
            {query.hasNextPage && <Button variant="subtle" size="compact-xs" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>Search further</Button>}
          </p>
          {found.length > 0 && (
            <ol className={classes.hits}>
              {found.map((line) => (
                <li key={line.offset}>
                  <button type="button" onClick={() => onOpen(line)} data-level={line.level?.toLowerCase() ?? ""}>
                    <span className="tabular">{timeOfDay(line.at)}</span> <span className={classes.hit}>{line.text}</span>
                  </button>
                </li>
              ))}
            </ol>
          )}
        </>
      )}
    </section>
  );
}
