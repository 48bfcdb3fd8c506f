import { Button, Group, Table } from "@mantine/core";
import { IconCalendarPlus, IconTool } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";

import { remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Pool } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { moment } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useDialog } from "../common/use-dialog.ts";
import { useNow } from "../common/use-now.ts";
import { useTopic } from "../stream/stream.ts";
import { AXIS_HOURS, barOf, entriesOf, periodText, whereText, whoseText, type Entry } from "./calendar.ts";
import { PlanMaintenance, ReserveSlots } from "./calendar-dialogs.tsx";
import classes from "./calendar-panel.module.css";
import { RequiresAdmin } from "./requires-admin.tsx";

type Dialog = "reserve" | "maintain" | Entry;

/** The reservations and maintenance windows of the pool that have not ended. */
export function Calendar({ pool }: { pool: Pool }) {
  const reservations = useQuery(queries.reservations(pool.name));
  const windows = useQuery(queries.maintenance(pool.name));
  const { shown, show, close } = useDialog<Dialog>();
  const refetch = () => { void reservations.refetch(); void windows.refetch(); };
  useTopic("pool", refetch, refetch);
  const error = reservations.error ?? windows.error;
  const entries = entriesOf(reservations.data ?? [], windows.data ?? []);
  return (
    <Panel title="Reservations and maintenance" flush aside={
      <RequiresAdmin pool={pool}>
        <Group gap={8}>
          <Button variant="default" size="compact-sm" disabled={!pool.may_manage} leftSection={<IconCalendarPlus size={14} />} onClick={() => show("reserve")}>Reserve slots…</Button>
          <Button variant="default" size="compact-sm" disabled={!pool.may_manage} leftSection={<IconTool size={14} />} onClick={() => show("maintain")}>Plan maintenance…</Button>
        </Group>
      </RequiresAdmin>
    }>
      <ProblemNotice error={error} retry={refetch} />
      {reservations.isPending || windows.isPending ? <Waiting /> : entries.length === 0 && error === null
        ? <Empty title="Nothing is planned">Admins of the pool reserve slots for a team for a time, and plan the maintenance of nodes.</Empty>
        : <Entries pool={pool} entries={entries} cancel={show} />}
      {shown === "reserve" && <ReserveSlots pool={pool} onClose={close} />}
      {shown === "maintain" && <PlanMaintenance pool={pool} onClose={close} />}
      {shown !== null && typeof shown === "object" && <CancelEntry pool={pool} entry={shown} onClose={close} />}
    </Panel>
  );
}

function Entries({ pool, entries, cancel }: { pool: Pool; entries: Entry[]; cancel: (entry: Entry) => void }) {
  const now = useNow(30_000);
  return (
    <div className={classes.scroll}>
      <Table className="tabular" data-testid="calendar">
        <Table.Thead>
          <Table.Tr><Table.Th>For</Table.Th><Table.Th>Slots</Table.Th><Table.Th miw={130}>When</Table.Th><Table.Th w={110}>State</Table.Th><Table.Th className={classes.axis}>Next {AXIS_HOURS} hours</Table.Th><Table.Td w={90} /></Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {entries.map((entry) => (
            <Table.Tr key={entry.of.id}>
              <Table.Td><strong className={classes.name}>{whoseText(entry)}</strong>{entry.of.reason !== "" && <span className={classes.detail}>{entry.of.reason}</span>}</Table.Td>
              <Table.Td>{whereText(entry, now)}</Table.Td>
              <Table.Td title={`${moment(entry.of.starts_at)} to ${moment(entry.of.ends_at)}, planned by ${entry.of.created_by}`}>{periodText(entry.of, now)}</Table.Td>
              <Table.Td><StatusBadge status={entry.of.state} /></Table.Td>
              <Table.Td className={classes.axis}><Bar entry={entry} now={now} /></Table.Td>
              <Table.Td ta="right">
                <RequiresAdmin pool={pool}><Button variant="subtle" color="gray" size="compact-sm" disabled={!pool.may_manage} aria-label={`Cancel: ${whoseText(entry)}, ${periodText(entry.of, now)}`} onClick={() => cancel(entry)}>Cancel…</Button></RequiresAdmin>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

/** When it is, on an axis that begins now. Days begin at the ticks. */
function Bar({ entry, now }: { entry: Entry; now: number }) {
  const bar = barOf(entry.of, now);
  return (
    <div className={classes.track} aria-hidden>
      {bar === null ? <span className={classes.later}>later</span> : <span className={classes.bar} data-kind={entry.kind} style={{ left: `${bar.left * 100}%`, width: `${bar.width * 100}%` }} />}
    </div>
  );
}

function CancelEntry({ pool, entry, onClose }: { pool: Pool; entry: Entry; onClose: () => void }) {
  const isMaintenance = entry.kind === "maintenance";
  const path = { pool_name: pool.name };
  return (
    <Confirm
      title={isMaintenance ? "Cancel the maintenance?" : `Cancel the reservation for ${whoseText(entry)}?`}
      action={isMaintenance ? "Cancel maintenance" : "Cancel reservation"}
      run={() => isMaintenance
        ? remove("/api/v1/pools/{pool_name}/maintenance/{window_id}", { path: { ...path, window_id: entry.of.id } })
        : remove("/api/v1/pools/{pool_name}/reservations/{reservation_id}", { path: { ...path, reservation_id: entry.of.id } })}
      changes={[["pool"]]}
      onClose={onClose}
    >
      {isMaintenance
        ? "Nodes that it drains accept jobs again. Runs that were asked to leave still save a checkpoint and return to the queue."
        : "Its slots are for everybody again. Runs that use them stay, and count toward the quota of the team from now on."}
    </Confirm>
  );
}
