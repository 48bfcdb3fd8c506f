import { Button, Table } from "@mantine/core";
import { IconChevronDown, IconChevronRight, IconDownload } from "@tabler/icons-react";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { Fragment, useMemo, useState } from "react";
import { useSearchParams } from "react-router";

import { urlOf } from "../api/http.ts";
import { audit as auditQuery } from "../api/team-queries.ts";
import type { AuditEntry } from "../api/schema.d.ts";
import { CopyId } from "../common/copy-id.tsx";
import { moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { AuditChainPanel } from "./audit-chain.tsx";
import { auditFilter, isFiltered } from "./audit-filter.ts";
import { AuditFilters } from "./audit-filters.tsx";
import classes from "./team.module.css";

export function AuditTab() {
  const [search, setSearch] = useSearchParams();
  const filter = useMemo(() => auditFilter(search, Date.now()), [search]); // a period begins when it is chosen, so that pages stay
  const query = useInfiniteQuery({ ...auditQuery(filter), placeholderData: keepPreviousData });
  const [openId, setOpenId] = useState<string | null>(null);
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  return (
    <div className={classes.stack}>
      <AuditChainPanel />
      <AuditFilters />
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <Panel title="What happened here, newest first" flush aside={<><Export filter={filter} format="csv" /><Export filter={filter} format="jsonl" /></>}>
        {query.isPending ? <Waiting label="Loading the audit log" /> : query.data === undefined ? null : list.length === 0 ? (
          isFiltered(filter)
            ? <Empty title="No entry matches" action={<Button variant="default" onClick={() => setSearch({ tab: "audit" })}>Clear filters</Button>}>Names match exactly; an action such as run.* matches all of runs.</Empty>
            : <Empty title="Nothing yet">Every login, token, role, secret, pool and run command of this project adds an entry.</Empty>
        ) : (
          <Table className="tabular" data-testid="audit">
            <Table.Thead><Table.Tr><Table.Td w={36} /><Table.Th>Time</Table.Th><Table.Th>Who</Table.Th><Table.Th>Action</Table.Th><Table.Th className={classes.wide}>On</Table.Th><Table.Th className={classes.wide}>From</Table.Th><Table.Th ta="right" className={classes.wide} title="Place in the chain of the project">Number</Table.Th></Table.Tr></Table.Thead>
            <Table.Tbody>
              {list.map((entry) => (
                <Fragment key={entry.id}>
                  <Row entry={entry} isOpen={openId === entry.id} onToggle={() => setOpenId(openId === entry.id ? null : entry.id)} />
                  {openId === entry.id && <Table.Tr data-testid="audit-entry"><Table.Td colSpan={7}><Details entry={entry} /></Table.Td></Table.Tr>}
                </Fragment>
              ))}
            </Table.Tbody>
          </Table>
        )}
        <More query={query} />
      </Panel>
    </div>
  );
}

/** Exports what the filters select, oldest first. */
function Export({ filter, format }: { filter: object; format: "csv" | "jsonl" }) {
  return (
    <Button component="a" href={urlOf("/api/v1/audit/export", {}, { ...filter, format })} download variant="default" leftSection={<IconDownload size={14} />} title={format === "jsonl" ? "Each line has the hash of the one before: a whole export verifies itself" : "For a spreadsheet"}>
      {format === "csv" ? "CSV" : "JSON lines"}
    </Button>
  );
}

function Row({ entry, isOpen, onToggle }: { entry: AuditEntry; isOpen: boolean; onToggle: () => void }) {
  const { actor, target } = entry;
  return (
    <Table.Tr>
      <Table.Td>
        <Button variant="subtle" color="gray" px={4} aria-expanded={isOpen} aria-label={`Details of ${entry.action}, ${moment(entry.at)}`} onClick={onToggle}>{isOpen ? <IconChevronDown size={14} /> : <IconChevronRight size={14} />}</Button>
      </Table.Td>
      <Table.Td className={classes.stamp}>{moment(entry.at)}</Table.Td>
      <Table.Td className={classes.who}>{actor.name || actor.kind}{actor.kind !== "user" && actor.name !== "" && <div className={classes.soft}>{actor.kind.replaceAll("_", " ")}</div>}{actor.token_id !== "" && <div className={classes.soft}>with a token</div>}</Table.Td>
      <Table.Td style={{ overflowWrap: "anywhere" }}>{entry.action}</Table.Td>
      <Table.Td className={`${classes.wide} ${classes.who}`}>{target.name || target.id}<div className={classes.soft}>{target.kind.replaceAll("_", " ")}</div></Table.Td>
      <Table.Td className={classes.wide}>{entry.address}</Table.Td>
      <Table.Td ta="right" className={classes.wide}>{entry.number ?? "soon"}</Table.Td>
    </Table.Tr>
  );
}

function Details({ entry }: { entry: AuditEntry }) {
  const ids: [string, string][] = [["Entry", entry.id], ["Request", entry.request_id], ["Actor", entry.actor.id], ["Token", entry.actor.token_id], ["Target", entry.target.id], ["SHA-256", entry.sha256]];
  return (
    <div className={classes.stack}>
      <span>{entry.message !== "" ? entry.message : [entry.action, "on", entry.target.kind.replaceAll("_", " "), entry.target.name].join(" ")}</span>
      <div className={classes.chips} style={{ gap: "4px 16px" }}>{ids.filter(([, id]) => id !== "").map(([label, id]) => <span key={label} className={classes.soft}>{label} <CopyId id={id} label={id.length > 40 ? `${id.slice(0, 16)}…` : id} /></span>)}</div>
      {Object.keys(entry.data).length > 0 && <pre className={`${classes.excerpt} mono`} tabIndex={0} aria-label="What changed">{JSON.stringify(entry.data, null, 1)}</pre>}
    </div>
  );
}
