import { Button, Group, Modal, Text } from "@mantine/core";
import { IconPlayerStop } from "@tabler/icons-react";
import { useMutation, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "react-router";

import { remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Playground } from "../api/schema.d.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { PageHeader } from "../common/panel.tsx";
import { PendingPage } from "../common/pending-page.tsx";
import { missingScopeReason } from "../common/permission.ts";
import { useDialog } from "../common/use-dialog.ts";
import { Composer } from "./composer.tsx";
import classes from "./playground.module.css";
import { playground as playgroundQuery, PLAYGROUNDS, statusOfSide } from "./playground-queries.ts";
import { SideColumn } from "./side-column.tsx";
import { againPath, hasSideEnded } from "./side-state.ts";
import { useChat } from "./use-chat.ts";

export function PlaygroundSession({ id }: { id: string }) {
  const { data, error, refetch } = useQuery(playgroundQuery(id));
  if (data === undefined) return <PendingPage title="Playground" label="Loading playground" error={error} retry={refetch} />;
  return (
    <>
      <ProblemNotice error={error} retry={() => void refetch()} />
      <Chat playground={data} />
    </>
  );
}

function Chat({ playground }: { playground: Playground }) {
  const me = useQuery(queries.me).data;
  const reason = me === undefined ? null : missingScopeReason(me.scopes, "runs:write");
  const { conversations, sendTo, sendAgain, stop, busy } = useChat();
  const ready = playground.sides.filter((side) => side.ready && !hasSideEnded(side));
  const statuses = useQueries({ queries: playground.sides.map((side) => ({ ...statusOfSide(side.base_url), enabled: ready.includes(side) && reason === null })) });
  const scores = statuses.map(({ data }) => data?.scores ?? false);
  const hasMessages = Object.values(conversations).some((turns) => turns.length > 0);
  const title = playground.sides.map(({ model }) => model.name).join(" and ");
  return (
    <>
      <PageHeader
        title="Playground"
        aside={playground.open
          ? reason === null && <Close playground={playground} hasMessages={hasMessages} />
          : <Button component={Link} to={againPath(playground)}>Open it again</Button>}
      >
        {title}, opened by {playground.created_by}. {hasMessages ? "" : "The conversation stays on this page only. "}<Link to="/playground">Another playground</Link>
      </PageHeader>
      <div className={classes.sides} data-two={playground.sides.length > 1}>
        {playground.sides.map((side, index) => (
          <SideColumn
            key={side.run} side={side} status={statuses[index]?.data} statusError={statuses[index]?.error ?? null} turns={conversations[side.run] ?? []} readOnly={reason}
            onSendAgain={ready.includes(side) && !busy ? (turn) => sendAgain(side, turn, scores[index] ?? false) : null}
          />
        ))}
      </div>
      {reason !== null ? <Text size="sm" c="dimmed" mt="sm">{reason}</Text> : playground.open && (
        <Composer
          waitsFor={ready.length === 0 ? "The first model is not ready yet." : null} busy={busy} scores={scores.some(Boolean)} onStop={stop}
          onSend={(question) => playground.sides.forEach((side, index) => { if (ready.includes(side)) void sendTo(side, question, scores[index] ?? false); })}
        />
      )}
    </>
  );
}

function Close({ playground, hasMessages }: { playground: Playground; hasMessages: boolean }) {
  const client = useQueryClient();
  const dialog = useDialog<true>();
  const close = useMutation({
    mutationFn: () => remove("/api/v1/playgrounds/{playground_id}", { path: { playground_id: playground.id } }),
    onSuccess: dialog.close,
    onSettled: () => void client.invalidateQueries({ queryKey: PLAYGROUNDS }),
  });
  const slots = playground.sides.length === 1 ? "the slot" : "both slots";
  return (
    <>
      <Button variant="default" leftSection={<IconPlayerStop size={14} />} onClick={() => dialog.show(true)} data-testid="close-playground">Stop and release {slots}</Button>
      {dialog.shown !== null && (
        <Modal opened onClose={dialog.close} title={`Stop and release ${slots}?`} returnFocus={false}>
          <ProblemNotice error={close.error} />
          <Text size="sm" mb="md">{hasMessages ? "The messages stay on this page until you leave it, and cannot be continued." : "No message was sent."} Opening it again loads the model again, which takes up to some minutes.</Text>
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={dialog.close} data-autofocus>Cancel</Button>
            <Button color="red" loading={close.isPending} onClick={() => close.mutate()} data-testid="confirm-close">Stop and release {slots}</Button>
          </Group>
        </Modal>
      )}
    </>
  );
}
