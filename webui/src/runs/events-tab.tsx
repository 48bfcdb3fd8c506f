import { Table } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";

import * as queries from "../api/queries.ts";
import type { Run } from "../api/schema.d.ts";
import { moment, words } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import stacked from "../common/stacked.module.css";

export function EventsTab({ run }: { run: Run }) {
  const query = useInfiniteQuery(queries.runEvents(run.id));
  const events = query.data?.pages.flatMap((page) => page.data) ?? [];
  return (
    <Panel flush>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.isPending ? <Waiting /> : query.data === undefined ? null : events.length === 0 ? <Empty title="No events yet">Every state change of the run is listed here.</Empty> : (
        <Table className={`tabular ${stacked.stacked}`}>
          <Table.Thead><Table.Tr><Table.Th w={190}>Time</Table.Th><Table.Th w={170}>Event</Table.Th><Table.Th miw={240}>Message</Table.Th></Table.Tr></Table.Thead>
          <Table.Tbody>
            {events.map((event) => (
              <Table.Tr key={event.id}>
                <Table.Td c="dimmed">{moment(event.at)}</Table.Td>
                <Table.Td>{words(event.kind)}</Table.Td>
                <Table.Td style={{ overflowWrap: "anywhere" }}>{event.message}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
      <More query={query} />
    </Panel>
  );
}
