import { Button, Checkbox, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { patch, post, remove as removeAt } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { RunView } from "../api/schema.d.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { viewQuery } from "./saved-view-query.ts";

function useChange<T>(change: (value: T) => Promise<unknown>, onDone: () => void) {
  const client = useQueryClient();
  return useMutation({ mutationFn: change, onSuccess: async () => { await client.invalidateQueries({ queryKey: queries.savedViews.queryKey }); onDone(); } });
}

export function SaveDialog({ search, own, onClose }: { search: URLSearchParams; own: RunView[]; onClose: () => void }) {
  const [name, setName] = useState("");
  const [shared, setShared] = useState(false);
  const replaced = own.find((view) => view.name === name.trim());
  const save = useChange((query: Record<string, string[]>) => (replaced === undefined
    ? post("/api/v1/saved-views", { body: { name: name.trim(), query, shared } })
    : patch("/api/v1/saved-views/{view_id}", { path: { view_id: replaced.id }, body: { query, shared } })), onClose);
  return (
    <Modal opened onClose={onClose} title="Save these filters">
      <form onSubmit={(event) => { event.preventDefault(); save.mutate(viewQuery(search)); }}>
        <Stack gap="sm">
          <ProblemNotice error={save.error} />
          <TextInput label="Name" required maxLength={120} value={name} onChange={(event) => setName(event.currentTarget.value)} data-autofocus />
          <Checkbox label="Everybody in the project sees it; only you can change it" checked={shared} onChange={(event) => setShared(event.currentTarget.checked)} />
          {replaced !== undefined && <Text size="sm">Replaces your view “{replaced.name}”.</Text>}
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={save.isPending} disabled={name.trim() === ""}>{replaced === undefined ? "Save view" : "Replace view"}</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

export function RemoveDialog({ view, onClose }: { view: RunView; onClose: () => void }) {
  const remove = useChange(() => removeAt("/api/v1/saved-views/{view_id}", { path: { view_id: view.id } }), onClose);
  return (
    <Modal opened onClose={onClose} title={`Delete “${view.name}”?`}>
      <Stack gap="sm">
        <ProblemNotice error={remove.error} />
        <Text size="sm">{view.shared ? "Everybody in the project loses this view." : "Only you have this view."} The runs stay.</Text>
        <Group justify="flex-end" gap={8}>
          <Button variant="default" onClick={onClose} data-autofocus>Cancel</Button>
          <Button color="red" loading={remove.isPending} onClick={() => remove.mutate(undefined)}>Delete view</Button>
        </Group>
      </Stack>
    </Modal>
  );
}
