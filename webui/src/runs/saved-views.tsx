import { Button, Menu, Text } from "@mantine/core";
import { IconBookmark, IconPencil, IconTrash } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";

import * as queries from "../api/queries.ts";
import type { RunView } from "../api/schema.d.ts";
import { useDialog } from "../common/use-dialog.ts";
import { isSameView, searchOf } from "./saved-view-query.ts";

const SaveDialog = lazy(() => import("./saved-view-dialogs.tsx").then(({ SaveDialog }) => ({ default: SaveDialog })));
const RenameDialog = lazy(() => import("./saved-view-dialogs.tsx").then(({ RenameDialog }) => ({ default: RenameDialog })));
const RemoveDialog = lazy(() => import("./saved-view-dialogs.tsx").then(({ RemoveDialog }) => ({ default: RemoveDialog })));

type Props = { search: URLSearchParams; columns: string[]; onOpen: (search: URLSearchParams) => void };

/** The saved filters, orders and columns of the run list: open one, save those of the page, or rename and delete one's own. */
export function SavedViews({ search, columns, onOpen }: Props) {
  const { data, error } = useQuery(queries.savedViews);
  const me = useQuery(queries.me).data?.user?.username;
  const dialog = useDialog<{ save: true } | { rename: RunView } | { remove: RunView }>();
  const views = data ?? [];
  const current = views.find((view) => isSameView(search, view));
  return (
    <>
      <Menu position="bottom-end" withinPortal>
        <Menu.Target><Button variant="default" leftSection={<IconBookmark size={14} />}>{current?.name ?? "Views"}</Button></Menu.Target>
        <Menu.Dropdown>
          {error !== null && <Menu.Label>The views were not loaded. Reload the page.</Menu.Label>}
          {views.length === 0 && error === null && <Menu.Label>No saved views yet</Menu.Label>}
          {views.map((view) => (
            <Menu.Item
              key={view.id} onClick={() => onOpen(searchOf(view))} aria-current={view === current}
              rightSection={<Text size="xs" c="dimmed">{view.owner === me ? (view.shared ? "shared" : "") : view.owner}</Text>}
            >
              {view.name}
            </Menu.Item>
          ))}
          <Menu.Divider />
          <Menu.Item onClick={() => dialog.show({ save: true })}>Save this view</Menu.Item>
          {current !== undefined && current.owner === me && <Menu.Item leftSection={<IconPencil size={14} />} onClick={() => dialog.show({ rename: current })}>Rename “{current.name}”</Menu.Item>}
          {current !== undefined && current.owner === me && <Menu.Item color="red" leftSection={<IconTrash size={14} />} onClick={() => dialog.show({ remove: current })}>Delete “{current.name}”</Menu.Item>}
        </Menu.Dropdown>
      </Menu>
      <Suspense fallback={null}>
        {dialog.shown !== null && ("save" in dialog.shown
          ? <SaveDialog search={search} columns={columns} own={views.filter((view) => view.owner === me)} onClose={dialog.close} />
          : "rename" in dialog.shown ? <RenameDialog view={dialog.shown.rename} onClose={dialog.close} /> : <RemoveDialog view={dialog.shown.remove} onClose={dialog.close} />)}
      </Suspense>
    </>
  );
}
