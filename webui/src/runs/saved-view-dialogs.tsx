import { Button, Checkbox, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { patch, post, remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { RunView } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { ProblemNotice } from "../common/notices.tsx";
import { viewQuery } from "./saved-view-query.ts";

type SaveProps = { search: URLSearchParams; columns: string[]; own: RunView[]; onClose: () => void };

export function SaveDialog({ search, columns, own, onClose }: SaveProps) {
  const [name, setName] = useState("");
  const [withColumns, setWithColumns] = useState(true);
  const [shared, setShared] = useState(false);
  const replaced = own.find((view) => view.name === name.trim());
  const client = useQueryClient();
  const save = useMutation({
    mutationFn: (query: Record<string, string[]>) => {
      const shown = { query, shared, columns: withColumns ? columns : null };
      return replaced === undefined
        ? post("/api/v1/saved-views", { body: { name: name.trim(), ...shown } })
        : patch("/api/v1/saved-views/{view_id}", { path: { view_id: replaced.id }, body: shown });
    },
    onSuccess: async () => { await client.invalidateQueries({ queryKey: queries.savedViews.queryKey }); onClose(); },
  });
  return (
    <Modal opened onClose={onClose} title="Save the filters and the order of the list">
      <form onSubmit={(event) => { event.preventDefault(); save.mutate(viewQuery(search)); }}>
        <Stack gap="sm">
          <ProblemNotice error={save.error} />
          <TextInput label="Name" required maxLength={120} value={name} onChange={(event) => setName(event.currentTarget.value)} data-autofocus />
          <Checkbox label="With the columns that are shown now" checked={withColumns} onChange={(event) => setWithColumns(event.currentTarget.checked)} />
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

export function RenameDialog({ view, onClose }: { view: RunView; onClose: () => void }) {
  const [name, setName] = useState(view.name);
  const client = useQueryClient();
  const rename = useMutation({
    mutationFn: () => patch("/api/v1/saved-views/{view_id}", { path: { view_id: view.id }, body: { name: name.trim() } }),
    onSuccess: async () => { await client.invalidateQueries({ queryKey: queries.savedViews.queryKey }); onClose(); },
  });
  return (
    <Modal opened onClose={onClose} title={`Rename “${view.name}”`}>
      <form onSubmit={(event) => { event.preventDefault(); rename.mutate(); }}>
        <Stack gap="sm">
          <ProblemNotice error={rename.error} />
          <TextInput label="Name" required maxLength={120} value={name} onChange={(event) => setName(event.currentTarget.value)} data-autofocus />
          {view.shared && <Text size="sm">Everybody in the project sees the new name.</Text>}
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={rename.isPending} disabled={name.trim() === "" || name.trim() === view.name}>Rename view</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

export function RemoveDialog({ view, onClose }: { view: RunView; onClose: () => void }) {
  return (
    <Confirm
      title={`Delete “${view.name}”?`} action="Delete view" changes={[queries.savedViews.queryKey]} onClose={onClose}
      run={() => remove("/api/v1/saved-views/{view_id}", { path: { view_id: view.id } })}
    >
      {view.shared ? "Everybody in the project loses this view." : "Only you have this view."} The runs stay.
    </Confirm>
  );
}
