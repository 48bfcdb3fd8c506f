import { Button, Group } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconArchive, IconArchiveOff, IconTrash } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "react-router";

import { patch, remove } from "../api/http.ts";
import { Confirm } from "../common/confirm.tsx";
import { ProblemNotice } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { useDialog } from "../common/use-dialog.ts";
import classes from "./function-page.module.css";
import type { FunctionData } from "./types.ts";

const FUNCTIONS = [["functions"]];

/** What a role that writes functions does with one that is no longer wanted. */
export function ArchiveFunction({ entry }: { entry: FunctionData }) {
  const dialog = useDialog<"archive" | "delete">();
  const navigate = useNavigate();
  const path = { function_id: entry.id };
  const versions = entry.versions.length === 1 ? "its version" : `its ${entry.versions.length} versions`;
  return (
    <Panel title="Archive or delete">
      <p className={classes.note}>
        {entry.archived_at === null
          ? "An archived function is hidden from the list and from forms. Specs that name it still run. A function that nothing refers to can be deleted."
          : "It is hidden from the list and from forms. Specs that name it still run. Restore it to add a version."}
      </p>
      <Group gap={8} mt={8}>
        {entry.archived_at === null ? <Button variant="default" leftSection={<IconArchive size={14} />} onClick={() => dialog.show("archive")}>Archive</Button> : <Restore entry={entry} />}
        <Button variant="default" color="red" leftSection={<IconTrash size={14} />} onClick={() => dialog.show("delete")}>Delete</Button>
      </Group>
      {dialog.shown === "archive" && (
        <Confirm
          title={`Archive ${entry.name}?`} action="Archive function" changes={FUNCTIONS} onClose={dialog.close}
          run={() => patch("/api/v1/functions/{function_id}", { path, body: { archived: true } })}
          onDone={() => notifications.show({ message: `${entry.name} is archived` })}
        >
          {entry.name} leaves the list and every form, and takes no new version. Runs, drafts, sweeps and gates that name it continue. You can restore it.
        </Confirm>
      )}
      {dialog.shown === "delete" && (
        <Confirm
          title={`Delete ${entry.name}?`} action="Delete function" changes={[]} onClose={dialog.close}
          run={() => remove("/api/v1/functions/{function_id}", { path })}
          onDone={() => { notifications.show({ message: `${entry.name} is deleted` }); void navigate("/functions"); }}
        >
          {entry.name} is deleted with {versions} and their source, for good. The server refuses while a run, draft, sweep, template or gate refers to it, and names them.
        </Confirm>
      )}
    </Panel>
  );
}

function Restore({ entry }: { entry: FunctionData }) {
  const client = useQueryClient();
  const restore = useMutation({
    mutationFn: () => patch("/api/v1/functions/{function_id}", { path: { function_id: entry.id }, body: { archived: false } }),
    onSuccess: () => {
      notifications.show({ message: `${entry.name} is listed again` });
      void client.invalidateQueries({ queryKey: ["functions"] });
    },
  });
  return (
    <>
      <ProblemNotice error={restore.error} />
      <Button variant="default" leftSection={<IconArchiveOff size={14} />} loading={restore.isPending} onClick={() => restore.mutate()}>Restore</Button>
    </>
  );
}
