import { Button, Checkbox, Fieldset, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import "@mantine/core/styles/Fieldset.css";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { patch, post } from "../api/http.ts";
import { webhooks as webhooksQuery } from "../api/team-queries.ts";
import type { Webhook } from "../api/schema.d.ts";
import { fieldError, otherError } from "../common/field-error.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { ShownOnce } from "../common/shown-once.tsx";
import classes from "./team.module.css";
import { EVENT_GROUPS, EVENTS, isChosen, toggleArea, toggleEvent } from "./webhook-events.ts";

const FIELDS = ["/name", "/url", "/events"];

/** Creates a webhook and shows its secret once, or changes one. */
export function WebhookForm({ webhook, onClose }: { webhook?: Webhook; onClose: () => void }) {
  const [name, setName] = useState(webhook?.name ?? "");
  const [url, setUrl] = useState(webhook?.url ?? "");
  const [events, setEvents] = useState(webhook?.events ?? ["run.*"]);
  const client = useQueryClient();
  const save = useMutation({
    mutationFn: async (): Promise<string | null> => {
      const body = { name: name.trim(), url: url.trim(), events };
      if (webhook === undefined) return (await post("/api/v1/webhooks", { body })).secret;
      await patch("/api/v1/webhooks/{webhook_id}", { path: { webhook_id: webhook.id }, body });
      return null;
    },
    onSuccess: (secret) => {
      void client.invalidateQueries({ queryKey: webhooksQuery.queryKey });
      if (secret === null) onClose();
    },
  });
  return (
    <Modal opened onClose={onClose} title={webhook === undefined ? "New webhook" : `Change ${webhook.name}`} size="xl">
      {typeof save.data === "string" ? (
        <ShownOnce what="signing secret" value={save.data} onDone={onClose}>The receiver checks with it that a request comes from here.</ShownOnce>
      ) : (
        <form onSubmit={(event) => { event.preventDefault(); save.mutate(); }}>
          <Stack gap="sm">
            <TextInput label="Name" required maxLength={120} data-autofocus value={name} onChange={(event) => setName(event.currentTarget.value)} error={fieldError(save.error, "/name", ["name_taken"])} />
            <TextInput label="URL" description="https on the public internet, or in a network that this installation allows" required maxLength={2000} placeholder="https://example.org/oolong" value={url} onChange={(event) => setUrl(event.currentTarget.value)} error={fieldError(save.error, "/url")} />
            <Events events={events} onChange={setEvents} error={fieldError(save.error, "/events")} />
            <ProblemNotice error={otherError(save.error, FIELDS, ["name_taken"])} />
            <Group justify="flex-end" gap={8}>
              <Button variant="default" onClick={onClose}>Cancel</Button>
              <Button type="submit" loading={save.isPending} disabled={name.trim() === "" || url.trim() === "" || events.length === 0}>{webhook === undefined ? "Create webhook" : "Save"}</Button>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}

function Events({ events, onChange, error }: { events: string[]; onChange: (events: string[]) => void; error?: string }) {
  return (
    <Fieldset legend="Events" p="sm">
      <Stack gap={10}>
        {error !== undefined && <span className={classes.bad}>{error}</span>}
        {EVENT_GROUPS.map((group) => {
          const chosen = group.events.filter((type) => isChosen(events, type)).length;
          return (
            <div key={group.area}>
              {group.events.length === 1 ? <Text size="xs" fw={560}>{group.title}</Text> : <Checkbox size="xs" fw={560} label={`${group.title}: all`} checked={chosen === group.events.length} indeterminate={chosen > 0 && chosen < group.events.length} onChange={() => onChange(toggleArea(events, group))} />}
              <div className={classes.events} style={{ margin: "4px 0 0 24px" }}>
                {group.events.map((type) => <Checkbox key={type} size="xs" label={type} description={EVENTS[type as keyof typeof EVENTS]} checked={isChosen(events, type)} onChange={() => onChange(toggleEvent(events, type))} />)}
              </div>
            </div>
          );
        })}
      </Stack>
    </Fieldset>
  );
}
