import { Table } from "@mantine/core";
import { IconCheck, IconX } from "@tabler/icons-react";

import { Panel } from "../common/panel.tsx";
import { grouped, percent, words } from "../common/format.ts";
import { counts, numberAt, sum, type Json } from "../common/json.ts";
import { funnelOf } from "./ledger-funnel.ts";
import classes from "./ledger-panel.module.css";

type Row = { state: string; groups: number | null; tokens: number | null; isPart?: boolean };

/**
 * The state of every group and every token. Each column comes from a counter of the controller; the last row shows
 * whether the rows add up to the total.
 */
export function LedgerPanel({ ledger, tokens }: { ledger: Json | null; tokens: Json | null }) {
  if (ledger === null) return <Panel title="Ledger"><p className={classes.none}>The rollout controller has not reported yet.</p></Panel>;
  const groupDrops = counts(ledger["dropped"] ?? ledger["dropped_by_reason"]);
  const tokenDrops = counts(tokens?.["dropped"] ?? tokens?.["dropped_by_reason"]);
  const inFlight = ["waiting", "running", "buffered", "taken"].map((name) => [name, numberAt(ledger, name) ?? 0] as [string, number]);
  const trained = numberAt(ledger, "trained");
  const sampled = numberAt(ledger, "drawn");
  const generated = numberAt(tokens, "generated");
  const lost = numberAt(tokens, "lost_to_recovery");
  const reasons = [...new Set([...groupDrops, ...tokenDrops].map(([reason]) => reason))].sort();
  const rows: Row[] = [
    { state: "Trained", groups: trained, tokens: numberAt(tokens, "trained") },
    ...reasons.map((reason) => ({
      state: `Dropped: ${words(reason).toLowerCase()}`,
      groups: groupDrops.find(([name]) => name === reason)?.[1] ?? 0,
      tokens: tokenDrops.find(([name]) => name === reason)?.[1] ?? 0,
    })),
    { state: "In flight", groups: sum(inFlight), tokens: numberAt(tokens, "in_hand") },
    ...inFlight.map(([name, count]) => ({ state: { waiting: "waiting for a worker", running: "running", buffered: "buffered", taken: "in training" }[name] ?? name, groups: count, tokens: null, isPart: true })),
    ...(lost ? [{ state: "Lost to recovery", groups: null, tokens: lost }] : []),
  ];
  const groupSum = (trained ?? 0) + sum(groupDrops) + sum(inFlight);
  const tokenSum = (numberAt(tokens, "trained") ?? 0) + sum(tokenDrops) + (numberAt(tokens, "in_hand") ?? 0) + (lost ?? 0);
  return (
    <Panel title="Ledger" aside={<a href="/docs/concepts/ledger" target="_blank" rel="noreferrer">each group and each token is in exactly one state</a>} flush>
      <Funnel ledger={ledger} />
      <Table verticalSpacing={4} className="tabular" data-testid="ledger">
        <Table.Thead>
          <Table.Tr><Table.Th>State</Table.Th><Table.Th ta="right">Groups</Table.Th><Table.Th ta="right">Tokens</Table.Th><Table.Th ta="right">% of tokens</Table.Th></Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={row.state} className={row.isPart ? classes.part : undefined}>
              <Table.Td>{row.state}</Table.Td>
              <Table.Td ta="right">{grouped(row.groups)}</Table.Td>
              <Table.Td ta="right">{row.isPart ? "" : grouped(row.tokens)}</Table.Td>
              <Table.Td ta="right">{row.isPart || row.tokens === null || !generated ? "" : percent(row.tokens / generated)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Table.Tr>
            <Table.Th>Total (sampled, generated)</Table.Th>
            <Table.Th ta="right">{grouped(sampled)} <Balance holds={sampled === groupSum} /></Table.Th>
            <Table.Th ta="right">{grouped(generated)} {generated !== null && <Balance holds={generated === tokenSum} />}</Table.Th>
            <Table.Td />
          </Table.Tr>
        </Table.Tfoot>
      </Table>
    </Panel>
  );
}

/** How far the sampled groups came, as bars of one length per group. */
function Funnel({ ledger }: { ledger: Json }) {
  const stages = funnelOf(ledger);
  if (stages === null) return null;
  const sampled = stages[0]!.count;
  return (
    <ol className={classes.funnel} aria-label="Groups by stage" data-testid="funnel">
      {stages.map(({ name, count, help, lost }) => (
        <li key={name} title={help} data-count={count}>
          <span className={classes.stage}>{name}</span>
          <span className={classes.bar} aria-hidden><i style={{ width: `${(100 * count) / sampled}%` }} /></span>
          <span className="tabular">{grouped(count)}</span>
          <small className="tabular">{percent(count / sampled, 0)}</small>
          {lost.length > 0 && <span className={classes.lost}>{lost.map((part) => `−${grouped(part.count)} ${part.label}`).join(", ")}</span>}
        </li>
      ))}
    </ol>
  );
}

function Balance({ holds }: { holds: boolean }) {
  const Mark = holds ? IconCheck : IconX;
  const label = holds ? "The rows add up to the total" : "The rows do not add up to the total";
  return <span className={classes.balance} data-holds={holds} title={label}><Mark size={13} stroke={2.6} aria-label={label} /></span>;
}
