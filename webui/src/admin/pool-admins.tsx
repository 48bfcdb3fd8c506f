import { Button, Group, Modal, Stack, Table, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post, remove } from "../api/http.ts";
import { poolAdmins as adminsQuery } from "../api/team-queries.ts";
import type { Me, PoolAdmin } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { fieldError, otherError } from "../common/field-error.ts";
import { ago, moment } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { may } from "../common/permission.ts";
import { useDialog } from "../common/use-dialog.ts";
import classes from "./admin.module.css";

/** Who manages the nodes and quotas of a pool, besides the admins of the installation. */
export function PoolAdmins({ me, pool }: { me: Me; pool: string }) {
  const { data: admins, error, refetch } = useQuery(adminsQuery(pool));
  const { shown, show, close } = useDialog<"new" | PoolAdmin>();
  const mayAppoint = may(me, "installation:admin");
  return (
    <Panel title="Admins of the pool" aside={mayAppoint ? <Button variant="default" onClick={() => show("new")}>Appoint</Button> : undefined} flush>
      <ProblemNotice error={error} retry={() => void refetch()} />
      {admins === undefined ? error === null && <Waiting label="Loading admins" /> : admins.length === 0 ? <p className={classes.note}>None. Admins of the installation manage every pool.</p> : (
        <Table className="tabular" data-testid="pool-admins">
          <Table.Tbody>
            {admins.map((admin) => (
              <Table.Tr key={admin.id}>
                <Table.Td className={classes.name}>{admin.username}</Table.Td>
                <Table.Td className={classes.soft} title={moment(admin.appointed_at)}>appointed {ago(admin.appointed_at)}</Table.Td>
                <Table.Td ta="right">{mayAppoint && <Button variant="subtle" color="red" px={8} aria-label={`Remove ${admin.username} from the admins of the pool`} onClick={() => show(admin)}>Remove</Button>}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
      {shown === "new" && <Appoint pool={pool} onClose={close} />}
      {shown !== null && shown !== "new" && (
        <Confirm title={`Remove ${shown.username} from the admins of ${pool}?`} action="Remove" changes={[adminsQuery(pool).queryKey]} onClose={close} run={() => remove("/api/v1/pools/{pool_name}/admins/{user_id}", { path: { pool_name: pool, user_id: shown.id } })}>
          {shown.username} can no longer enroll, drain or revoke its nodes, nor change quotas. What they did stays.
        </Confirm>
      )}
    </Panel>
  );
}

function Appoint({ pool, onClose }: { pool: string; onClose: () => void }) {
  const [username, setUsername] = useState("");
  const client = useQueryClient();
  const appoint = useMutation({
    mutationFn: () => post("/api/v1/pools/{pool_name}/admins", { path: { pool_name: pool }, body: { username: username.trim() } }),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: adminsQuery(pool).queryKey });
      onClose();
    },
  });
  return (
    <Modal opened onClose={onClose} title={`Appoint an admin of ${pool}`}>
      <form onSubmit={(event) => { event.preventDefault(); appoint.mutate(); }}>
        <Stack gap="sm">
          <TextInput label="Username" required maxLength={120} data-autofocus value={username} onChange={(event) => setUsername(event.currentTarget.value)} error={fieldError(appoint.error, "/username")} />
          <Text size="sm">They enroll nodes, and nodes see the data and secrets of their jobs. Appoint somebody whom every team of the pool trusts.</Text>
          <ProblemNotice error={otherError(appoint.error, ["/username"])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={appoint.isPending} disabled={username.trim() === ""}>Appoint</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
