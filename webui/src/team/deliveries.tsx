import { Button, Table } from "@mantine/core";
import { IconChevronDown, IconChevronRight } from "@tabler/icons-react";
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { Fragment, useState } from "react";

import { post } from "../api/http.ts";
import { deliveries as deliveriesQuery } from "../api/team-queries.ts";
import type { Delivery, Webhook } from "../api/schema.d.ts";
import { expiryText } from "../common/expiry.ts";
import { ago, moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useNow } from "../common/use-now.ts";
import classes from "./team.module.css";
import { lastAnswer } from "./webhook-events.ts";

const POLL_MILLISECONDS = 2_000; // while a delivery is pending

/** The log of a webhook's deliveries, newest first. A row opens to each try with the answer. */
export function Deliveries({ webhook }: { webhook: Webhook }) {
  const query = useInfiniteQuery({
    ...deliveriesQuery(webhook.id),
    refetchInterval: ({ state: { data } }) => (data?.pages.some((page) => page.data.some(({ state }) => state === "PENDING")) ? POLL_MILLISECONDS : false),
  });
  const [openId, setOpenId] = useState<string | null>(null);
  const now = useNow(5_000);
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  return (
    <Panel title={`Deliveries of ${webhook.name}`} aside="the last 30 days" flush>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      {query.isPending ? <Waiting label="Loading deliveries" /> : query.data === undefined ? null : list.length === 0 ? <Empty title="Nothing sent yet">Send a test from the menu of the webhook to see whether the receiver answers.</Empty> : (
        <Table className="tabular" data-testid="deliveries">
          <Table.Thead><Table.Tr><Table.Td w={36} /><Table.Th>Event</Table.Th><Table.Th>State</Table.Th><Table.Th ta="right" className={classes.wide}>Tries</Table.Th><Table.Th>Last answer</Table.Th><Table.Th className={classes.wide}>Created</Table.Th><Table.Td /></Table.Tr></Table.Thead>
          <Table.Tbody>
            {list.map((delivery) => (
              <Fragment key={delivery.id}>
                <Table.Tr>
                  <Table.Td>
                    <Button variant="subtle" color="gray" px={4} aria-label={`Tries of ${delivery.event.type}, ${moment(delivery.created_at)}`} aria-expanded={openId === delivery.id} onClick={() => setOpenId(openId === delivery.id ? null : delivery.id)}>
                      {openId === delivery.id ? <IconChevronDown size={14} /> : <IconChevronRight size={14} />}
                    </Button>
                  </Table.Td>
                  <Table.Td>{delivery.event.type}</Table.Td>
                  <Table.Td><StatusBadge status={delivery.state} />{delivery.next_at !== null && delivery.tries > 0 && <div className={classes.soft} title={moment(delivery.next_at)}>next try {Date.parse(delivery.next_at) <= now ? "now" : expiryText(delivery.next_at, now)}</div>}</Table.Td>
                  <Table.Td ta="right" className={classes.wide}>{delivery.tries}</Table.Td>
                  <Table.Td>{lastAnswer(delivery)}{delivery.message !== "" && delivery.state !== "DELIVERED" && <div className={classes.soft} style={{ overflowWrap: "anywhere" }}>{delivery.message}</div>}</Table.Td>
                  <Table.Td className={classes.wide} title={moment(delivery.created_at)}>{ago(delivery.created_at, now)}</Table.Td>
                  <Table.Td ta="right">{delivery.state !== "PENDING" && <Redeliver delivery={delivery} webhook={webhook} />}</Table.Td>
                </Table.Tr>
                {openId === delivery.id && <Table.Tr data-testid="tries"><Table.Td colSpan={7}><Tries delivery={delivery} /></Table.Td></Table.Tr>}
              </Fragment>
            ))}
          </Table.Tbody>
        </Table>
      )}
      <More query={query} />
    </Panel>
  );
}

/** Sends the same event once more, under the same id. */
function Redeliver({ delivery, webhook }: { delivery: Delivery; webhook: Webhook }) {
  const client = useQueryClient();
  const again = useMutation({
    mutationFn: () => post("/api/v1/webhook-deliveries/{delivery_id}/redeliver", { path: { delivery_id: delivery.id } }),
    onSuccess: () => void client.invalidateQueries({ queryKey: deliveriesQuery(webhook.id).queryKey }),
  });
  return (
    <>
      <Button variant="subtle" px={8} loading={again.isPending} disabled={!webhook.enabled} title={webhook.enabled ? "Send the same event again, under the same id" : "The webhook is off. Turn it on first."} aria-label={`Redeliver ${delivery.event.type}, ${moment(delivery.created_at)}`} onClick={() => again.mutate()}>Redeliver</Button>
      {again.error !== null && <div className={classes.bad} role="alert">{again.error.message}</div>}
    </>
  );
}

function Tries({ delivery }: { delivery: Delivery }) {
  return (
    <div className={classes.stack}>
      {delivery.log.length === 0 && <span className={classes.soft}>Not tried yet.</span>}
      {delivery.log.map((one) => (
        <div key={one.number}>
          <strong>Try {one.number}</strong> · {moment(one.at)} · {one.status === null ? "no answer" : `status ${one.status}`} · {one.milliseconds} ms{one.error !== "" && <span className={classes.bad}> · {one.error}</span>}
          {one.excerpt !== "" && <pre className={`${classes.excerpt} mono`} tabIndex={0} aria-label={`Beginning of the answer to try ${one.number}`}>{one.excerpt}</pre>}
        </div>
      ))}
      <div>
        <span className={classes.soft}>Sent as <code className="mono">{delivery.event.id}</code></span>
        <pre className={`${classes.excerpt} mono`} tabIndex={0} aria-label="Data of the event">{JSON.stringify(delivery.event.data, null, 1)}</pre>
      </div>
    </div>
  );
}
