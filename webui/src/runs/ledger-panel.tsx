import { Table } from "@mantine/core";
import { IconCheck, IconX } from "@tabler/icons-react";

import { Panel } from "../common/panel.tsx";
import { grouped, percent, words } from "../common/format.ts";
import { counts, numberAt, sum, type Json } from "../common/json.ts";
import classes from "./ledger-panel.module.css";

type Row = { fate: string; groups: number | null; tokens: number | null; isPart?: boolean };

/**
 * Every group and every token has one fate. The columns come from the controller's own counters, one each; the
 * line below says whether they add up.
 */
export function LedgerPanel({ ledger, tokens }: { ledger: Json | null; tokens: Json | null }) {
  if (ledger === null) return <Panel title="Ledger"><p className={classes.none}>The rollout controller has not reported yet.</p></Panel>;
  const groupDrops = counts(ledger["dropped"] ?? ledger["dropped_by_reason"]);
  const tokenDrops = counts(tokens?.["dropped"] ?? tokens?.["dropped_by_reason"]);
  const inHand = ["waiting", "running", "buffered", "taken"].map((name) => [name, numberAt(ledger, name) ?? 0] as [string, number]);
  const trained = numberAt(ledger, "trained");
  const drawn = numberAt(ledger, "drawn");
  const generated = numberAt(tokens, "generated");
  const lost = numberAt(tokens, "lost_to_recovery");
  const reasons = [...new Set([...groupDrops, ...tokenDrops].map(([reason]) => reason))].sort();
  const rows: Row[] = [
    { fate: "Trained", groups: trained, tokens: numberAt(tokens, "trained") },
    ...reasons.map((reason) => ({
      fate: `Dropped: ${words(reason).toLowerCase()}`,
      groups: groupDrops.find(([name]) => name === reason)?.[1] ?? 0,
      tokens: tokenDrops.find(([name]) => name === reason)?.[1] ?? 0,
    })),
    { fate: "In hand", groups: sum(inHand), tokens: numberAt(tokens, "in_hand") },
    ...inHand.map(([name, count]) => ({ fate: { waiting: "to be claimed again", running: "running", buffered: "buffered", taken: "taken by the trainer" }[name] ?? name, groups: count, tokens: null, isPart: true })),
    ...(lost ? [{ fate: "Lost to recovery", groups: null, tokens: lost }] : []),
  ];
  const groupSum = (trained ?? 0) + sum(groupDrops) + sum(inHand);
  const tokenSum = (numberAt(tokens, "trained") ?? 0) + sum(tokenDrops) + (numberAt(tokens, "in_hand") ?? 0) + (lost ?? 0);
  return (
    <Panel title="Ledger" aside="each group and each token has one fate" flush>
      <Table verticalSpacing={4} className="tabular" data-testid="ledger">
        <Table.Thead>
          <Table.Tr><Table.Th>Fate</Table.Th><Table.Th ta="right">Groups</Table.Th><Table.Th ta="right">Tokens</Table.Th><Table.Th ta="right">of tokens</Table.Th></Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={row.fate} className={row.isPart ? classes.part : undefined}>
              <Table.Td>{row.fate}</Table.Td>
              <Table.Td ta="right">{grouped(row.groups)}</Table.Td>
              <Table.Td ta="right">{row.isPart ? "" : grouped(row.tokens)}</Table.Td>
              <Table.Td ta="right">{row.isPart || row.tokens === null || !generated ? "" : percent(row.tokens / generated)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Table.Tr>
            <Table.Th>Drawn, generated</Table.Th>
            <Table.Th ta="right">{grouped(drawn)} <Balance holds={drawn === groupSum} /></Table.Th>
            <Table.Th ta="right">{grouped(generated)} {generated !== null && <Balance holds={generated === tokenSum} />}</Table.Th>
            <Table.Th />
          </Table.Tr>
        </Table.Tfoot>
      </Table>
    </Panel>
  );
}

function Balance({ holds }: { holds: boolean }) {
  const Mark = holds ? IconCheck : IconX;
  const words = holds ? "The rows add up to this" : "The rows do not add up to this";
  return <span className={classes.balance} data-holds={holds} title={words}><Mark size={13} stroke={2.6} aria-label={words} /></span>;
}
