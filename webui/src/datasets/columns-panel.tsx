import { Button, Table } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";

import * as queries from "../api/queries.ts";
import type { ColumnStatistics, Version } from "../api/schema.d.ts";
import "../common/card-table.css";
import { DASH, grouped, percent } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import classes from "./columns-panel.module.css";
import { columnLabel, distinctText, frequentText, rangeText } from "./columns-text.ts";

const POLL_MILLISECONDS = 1_500;

/** What each column of a version holds. Measured in the pass that counts tokens, and the same for every tokenizer. */
export function ColumnsPanel({ version }: { version: Version }) {
  const [, setSearch] = useSearchParams();
  const query = useQuery({ ...queries.datasetStatistics(version.id), refetchInterval: ({ state }) => (state.data?.some(isUnderWay) ? POLL_MILLISECONDS : false) });
  const columns = query.data?.find(({ columns: found }) => found.length > 0)?.columns ?? [];
  const failed = query.data?.find(({ state }) => state === "FAILED");
  const toTokens = () => setSearch((old) => { const next = new URLSearchParams(old); next.set("tab", "statistics"); return next; }, { replace: true });
  return (
    <Panel title={`Columns of ${version.ref}`} aside={columns.length > 0 && `${grouped(version.rows)} rows`} flush>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.isPending ? <Waiting /> : query.data === undefined ? null : columns.length > 0 ? <Columns columns={columns} /> : query.data.some(isUnderWay) ? (
        <Waiting label="The rows are being measured" />
      ) : failed !== undefined ? (
        <Empty title="Measuring failed" action={<Button variant="default" onClick={toTokens}>Go to token lengths</Button>}>{failed.message}</Empty>
      ) : (
        <Empty title="Not measured yet" action={<Button variant="default" onClick={toTokens}>Go to token lengths</Button>}>
          Columns are measured together with the token lengths, once for each version: missing and distinct values, lengths, numbers, and the most frequent values.
        </Empty>
      )}
    </Panel>
  );
}

const isUnderWay = ({ state }: { state: string }) => state === "QUEUED" || state === "RUNNING";

function Columns({ columns }: { columns: ColumnStatistics[] }) {
  return (
    <Table className="tabular card-table" data-testid="columns" verticalSpacing={8}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Column</Table.Th>
          <Table.Th ta="right" title="Rows whose value is null or empty">Missing</Table.Th>
          <Table.Th ta="right" title="How many different values there are. Above 4,096 it is an estimate, usually within 3 %.">Distinct</Table.Th>
          <Table.Th ta="right" title="Characters of the values that are there: shortest, median, 95th percentile, longest">Characters: min, median, p95, max</Table.Th>
          <Table.Th title="Values that are finite numbers, and their range">Numbers</Table.Th>
          <Table.Th title="Long values are cut after 200 characters">Most frequent values</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>{columns.map((column) => <Row key={column.name} column={column} />)}</Table.Tbody>
    </Table>
  );
}

function Row({ column }: { column: ColumnStatistics }) {
  const { name, rows, missing, shortest, median, p95, longest, frequent } = column;
  return (
    <Table.Tr className={classes.row} data-column={name}>
      <Table.Td>{columnLabel(name)}</Table.Td>
      <Table.Td data-label="Missing" ta="right">{missing === 0 ? 0 : <>{grouped(missing)}<div className={classes.sub}>{percent(missing / Math.max(1, rows))}</div></>}</Table.Td>
      <Table.Td data-label="Distinct" ta="right">{distinctText(column)}</Table.Td>
      <Table.Td data-label="Characters: min, median, p95, max" ta="right">{[shortest, median, p95, longest].map((length) => grouped(length)).join(", ")}</Table.Td>
      <Table.Td data-label="Numbers">{rangeText(column) ?? DASH}</Table.Td>
      <Table.Td data-label="Most frequent values">
        {frequent.length === 0 ? <span className={classes.sub}>No value repeats often enough to list.</span> : (
          <ul className={classes.values}>
            {frequent.map((one, index) => <li key={index}><span className={`mono ${classes.value}`} title={one.value}>{one.value}</span><span className={classes.sub}>{frequentText(one, column)}</span></li>)}
          </ul>
        )}
      </Table.Td>
    </Table.Tr>
  );
}
