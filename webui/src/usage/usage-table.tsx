import { Button, Table } from "@mantine/core";
import { useState } from "react";
import { Link } from "react-router";

import type { Usage, UsageRow, UsageTotal } from "../api/schema.d.ts";
import "../common/card-table.css";
import { compact, DASH, grouped, percent } from "../common/format.ts";
import { OUTCOMES, outcomeLabel } from "./outcomes.ts";
import classes from "./usage.module.css";
import { money, rowName, slotTime, wastedShare, type UsageView } from "./usage-view.ts";

const FIRST_ROWS = 50;

export function UsageTable({ usage, by }: { usage: Usage; by: UsageView["by"] }) {
  const [isWhole, setWhole] = useState(false);
  const currency = usage.total.cost > 0 ? usage.currency : null;
  const rows = isWhole ? usage.data : usage.data.slice(0, FIRST_ROWS);
  return (
    <>
      <div className={classes.scroll}>
        <Table className="tabular card-table" data-testid="usage">
          <Table.Thead>
            <Table.Tr>
              <Table.Th tt="capitalize">{by}</Table.Th>
              {by !== "run" && <Table.Th ta="right">Runs</Table.Th>}
              <Table.Th ta="right" title="Time in which slots were held, of all devices">Slot-hours</Table.Th>
              <Table.Th ta="right" title="Of them, those of GPU slots">GPU-hours</Table.Th>
              {usage.total.cost > 0 && <Table.Th ta="right" title="At the prices at which the slots were granted">Cost</Table.Th>}
              <Table.Th miw={180}>What became of it</Table.Th>
              <Table.Th ta="right" title="Completion tokens of these runs, also outside of the period">Tokens generated</Table.Th>
              <Table.Th ta="right" title="Part of them that was dropped, or lost to recoveries">Wasted</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map((row) => (
              <Table.Tr key={[row.team?.id, row.project?.id, row.run?.id].join()}>
                <Table.Td className={classes.name}><Name row={row} by={by} /></Table.Td>
                <Figures row={row} by={by} currency={currency} />
              </Table.Tr>
            ))}
          </Table.Tbody>
          {usage.data.length > 1 && <Table.Tfoot><Table.Tr><Table.Th>Total</Table.Th><Figures row={usage.total} by={by} currency={currency} /></Table.Tr></Table.Tfoot>}
        </Table>
      </div>
      {rows.length < usage.data.length && <div className={classes.more}><Button variant="default" onClick={() => setWhole(true)}>Show all {grouped(usage.data.length)}</Button></div>}
      {usage.left_out > 0 && <p className={classes.more}>{grouped(usage.left_out)} smaller rows are in the total and in the CSV file.</p>}
    </>
  );
}

function Name({ row, by }: { row: UsageRow; by: UsageView["by"] }) {
  const name = rowName(row, by);
  return (
    <>
      {by === "run" && row.run !== null ? <Link to={`/runs/${row.run.id}`}>{name}</Link> : name}
      {by !== "team" && row.team !== null && <small>{[row.team.name, by === "run" ? row.project?.name : undefined].filter(Boolean).join(" / ")}</small>}
    </>
  );
}

/** Without a currency there is no cost. */
function Figures({ row, by, currency }: { row: UsageTotal; by: UsageView["by"]; currency: string | null }) {
  return (
    <>
      {by !== "run" && <Table.Td data-label="Runs" ta="right">{grouped(row.runs)}</Table.Td>}
      <Table.Td data-label="Slot-hours" ta="right">{slotTime(row.slot_seconds)}</Table.Td>
      <Table.Td data-label="GPU-hours" ta="right">{row.gpu_seconds === 0 ? DASH : slotTime(row.gpu_seconds)}</Table.Td>
      {currency !== null && <Table.Td data-label="Cost" ta="right">{money(row.cost, currency)}</Table.Td>}
      <Table.Td data-label="Outcome"><Outcomes row={row} /></Table.Td>
      <Table.Td data-label="Tokens" ta="right">{compact(row.tokens.generated)}</Table.Td>
      <Table.Td data-label="Wasted" ta="right" title={droppedText(row)}>{percent(wastedShare(row.tokens))}</Table.Td>
    </>
  );
}

function Outcomes({ row }: { row: UsageTotal }) {
  const share = (code: (typeof OUTCOMES)[number]) => (row.slot_seconds === 0 ? 0 : row.outcomes[code] / row.slot_seconds);
  const text = OUTCOMES.filter((code) => row.outcomes[code] > 0).map((code) => `${outcomeLabel(code)} ${percent(share(code))}`).join(", ");
  return (
    <>
      <span className={classes.strip} role="img" aria-label={text} title={text}>
        {OUTCOMES.map((code, index) => share(code) > 0 && <i key={code} data-part={code} data-color={index + 1} style={{ width: `${100 * share(code)}%` }} />)}
      </span>
      <small className={classes.soft}>{percent(share("trained"), 0)} trained, {percent(share("idle"), 0)} idle</small>
    </>
  );
}

function droppedText({ tokens }: UsageTotal): string | undefined {
  if (tokens.dropped === null) return undefined;
  const dropped = Object.entries(tokens.dropped).map(([reason, count]) => `${grouped(count)} dropped: ${reason.replaceAll("_", " ")}`);
  return [...dropped, `${grouped(tokens.lost)} lost to recoveries`].join(", ");
}
