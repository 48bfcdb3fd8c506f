import { Button, Menu, Modal, Stack, Table, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconDots, IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";

import { patch, post, remove } from "../api/http.ts";
import { deliveries as deliveriesQuery, webhooks as webhooksQuery } from "../api/team-queries.ts";
import type { Webhook } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { ago, moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { ShownOnce } from "../common/shown-once.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useDialog } from "../common/use-dialog.ts";
import { Deliveries } from "./deliveries.tsx";
import classes from "./team.module.css";
import { webhookState } from "./webhook-events.ts";
import { WebhookForm } from "./webhook-form.tsx";

type Kind = "edit" | "rotate" | "off" | "delete";
type Dialog = { kind: "new" } | { kind: Kind; webhook: Webhook };

export function WebhooksTab() {
  const query = useInfiniteQuery(webhooksQuery);
  const [search] = useSearchParams();
  const { shown, show, close } = useDialog<Dialog>();
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  const open = list.find(({ id }) => id === search.get("webhook")) ?? list[0];
  const newButton = <Button onClick={() => show({ kind: "new" })} leftSection={<IconPlus size={14} />}>New webhook</Button>;
  return (
    <div className={classes.stack}>
      <div className={classes.tools} style={{ margin: 0 }}>
        <p className={classes.lead}>A webhook posts events of this project to your URL, signed. <a href="/docs/how-to/webhooks" target="_blank" rel="noreferrer">How to receive and check them</a></p>
        {list.length > 0 && newButton}
      </div>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <Panel title="Webhooks" flush>
        {query.isPending ? <Waiting label="Loading webhooks" /> : query.data === undefined ? null : list.length === 0 ? (
          <Empty title="No webhooks yet" action={newButton}>Get a message in your chat or CI when a run fails, an alert fires or a checkpoint is stored.</Empty>
        ) : (
          <Table className="tabular" data-testid="webhooks">
            <Table.Thead><Table.Tr><Table.Th>Name</Table.Th><Table.Th>State</Table.Th><Table.Th className={classes.wide}>Events</Table.Th><Table.Td w={44} /></Table.Tr></Table.Thead>
            <Table.Tbody>{list.map((webhook) => <Row key={webhook.id} webhook={webhook} isOpen={webhook.id === open?.id} onAct={(kind) => show({ kind, webhook })} />)}</Table.Tbody>
          </Table>
        )}
        <More query={query} />
      </Panel>
      {open !== undefined && <Deliveries key={open.id} webhook={open} />}
      {shown?.kind === "new" && <WebhookForm onClose={close} />}
      {shown?.kind === "edit" && <WebhookForm webhook={shown.webhook} onClose={close} />}
      {shown?.kind === "rotate" && <RotateSecret webhook={shown.webhook} onClose={close} />}
      {shown?.kind === "off" && (
        <Confirm title={`Turn ${shown.webhook.name} off?`} action="Turn off" changes={[webhooksQuery.queryKey]} onClose={close}
          run={() => patch("/api/v1/webhooks/{webhook_id}", { path: { webhook_id: shown.webhook.id }, body: { enabled: false } })}>
          Pending deliveries are given up, and events from now on are not sent. You can turn it on again and redeliver single events.
        </Confirm>
      )}
      {shown?.kind === "delete" && (
        <Confirm title={`Delete ${shown.webhook.name}?`} action="Delete" changes={[webhooksQuery.queryKey]} onClose={close} run={() => remove("/api/v1/webhooks/{webhook_id}", { path: { webhook_id: shown.webhook.id } })}>
          Its secret and its log of deliveries are deleted with it, and nothing more is sent. You cannot undo this.
        </Confirm>
      )}
    </div>
  );
}

function Row({ webhook, isOpen, onAct }: { webhook: Webhook; isOpen: boolean; onAct: (kind: Kind) => void }) {
  const client = useQueryClient();
  const changed = () => void client.invalidateQueries({ queryKey: webhooksQuery.queryKey });
  const onError = (error: Error) => notifications.show({ color: "red", message: error.message });
  const turnOn = useMutation({ mutationFn: () => patch("/api/v1/webhooks/{webhook_id}", { path: { webhook_id: webhook.id }, body: { enabled: true } }), onSuccess: changed, onError });
  const test = useMutation({
    mutationFn: () => post("/api/v1/webhooks/{webhook_id}/test", { path: { webhook_id: webhook.id } }),
    onSuccess: () => void client.invalidateQueries({ queryKey: deliveriesQuery(webhook.id).queryKey }),
    onError,
  });
  return (
    <Table.Tr>
      <Table.Td>
        <Link className={classes.name} to={`?tab=webhooks&webhook=${webhook.id}`} aria-current={isOpen}>{webhook.name}</Link>
        <div className={`${classes.soft} mono`} style={{ overflowWrap: "anywhere" }}>{webhook.url}</div>
      </Table.Td>
      <Table.Td>
        <StatusBadge status={webhookState(webhook)} />
        {!webhook.enabled && webhook.disabled_reason !== "" && <div className={classes.soft}>{webhook.disabled_reason}</div>}
        {webhook.enabled && webhook.failing_since !== null && <div className={classes.soft} title={moment(webhook.failing_since)}>since {ago(webhook.failing_since)}</div>}
      </Table.Td>
      <Table.Td className={classes.wide}><div className={classes.chips}>{webhook.events.map((event) => <span key={event} className={classes.chip}>{event}</span>)}</div></Table.Td>
      <Table.Td ta="right">
        <Menu position="bottom-end" width={230}>
          <Menu.Target><Button variant="subtle" color="gray" px={6} aria-label={`Actions on ${webhook.name}`}><IconDots size={15} /></Button></Menu.Target>
          <Menu.Dropdown>
            <Menu.Item disabled={!webhook.enabled} component={Link} to={`?tab=webhooks&webhook=${webhook.id}`} onClick={() => test.mutate()}>Send a test{!webhook.enabled && <Text size="xs" c="dimmed">Turn it on first</Text>}</Menu.Item>
            <Menu.Item onClick={() => onAct("edit")}>Change name, URL or events</Menu.Item>
            <Menu.Item onClick={() => onAct("rotate")}>Rotate the secret</Menu.Item>
            {webhook.enabled ? <Menu.Item onClick={() => onAct("off")}>Turn off</Menu.Item> : <Menu.Item onClick={() => turnOn.mutate()}>Turn on</Menu.Item>}
            <Menu.Item color="red" onClick={() => onAct("delete")}>Delete</Menu.Item>
          </Menu.Dropdown>
        </Menu>
      </Table.Td>
    </Table.Tr>
  );
}

function RotateSecret({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const client = useQueryClient();
  const rotate = useMutation({
    mutationFn: () => post("/api/v1/webhooks/{webhook_id}/rotate-secret", { path: { webhook_id: webhook.id } }),
    onSuccess: () => void client.invalidateQueries({ queryKey: webhooksQuery.queryKey }),
  });
  return (
    <Modal opened onClose={onClose} title={`Rotate the secret of ${webhook.name}`}>
      {rotate.data !== undefined ? (
        <ShownOnce what="signing secret" value={rotate.data.secret} onDone={onClose}>Requests carry signatures of both secrets until {moment(rotate.data.previous_secret_until)}.</ShownOnce>
      ) : (
        <Stack gap="sm">
          <Text size="sm">Creates a new secret. For a day requests are signed with both, so that the receiver can change over at any moment of it.{webhook.previous_secret_until !== null && " The secret before the current one stops signing now."}</Text>
          <ProblemNotice error={rotate.error} />
          <Stack gap={8} align="flex-end"><div><Button variant="default" mr={8} onClick={onClose}>Cancel</Button><Button loading={rotate.isPending} onClick={() => rotate.mutate()}>Rotate secret</Button></div></Stack>
        </Stack>
      )}
    </Modal>
  );
}
