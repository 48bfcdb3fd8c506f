import { Button, Group, Modal, Select, Stack, Table, TextInput } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { post, remove } from "../api/http.ts";
import { invitations as invitationsQuery } from "../api/team-queries.ts";
import type { Invitation, Me, Role } from "../api/schema.d.ts";
import "../common/card-table.css";
import { Confirm } from "../common/confirm.tsx";
import { expiryText, lifetimes } from "../common/expiry.ts";
import { fieldError, otherError } from "../common/field-error.ts";
import { moment } from "../common/format.ts";
import { More } from "../common/more.tsx";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { may } from "../common/permission.ts";
import { ShownOnce } from "../common/shown-once.tsx";
import { StatusBadge } from "../common/status.tsx";
import { useDialog } from "../common/use-dialog.ts";
import { useNow } from "../common/use-now.ts";
import { RoleSelect } from "./role-select.tsx";
import { rolesToGive, type Level } from "./roles.ts";
import type { TabProps } from "./team-page.tsx";
import classes from "./team.module.css";

export function InvitationsTab({ me }: TabProps) {
  const query = useInfiniteQuery(invitationsQuery);
  const { shown, show, close } = useDialog<"new" | Invitation>();
  const now = useNow(30_000);
  const list = query.data?.pages.flatMap((page) => page.data) ?? [];
  const inviteButton = <Button onClick={() => show("new")} leftSection={<IconPlus size={14} />}>Invite somebody</Button>;
  return (
    <>
      <div className={classes.tools}>
        <p className={classes.lead}>A link lets one person join, as a new user or with their account. It ends when it is used, revoked or too old, and when its maker may not invite any more.</p>
        {list.length > 0 && inviteButton}
      </div>
      <ProblemNotice error={query.error} retry={() => void query.refetch()} />
      <Panel title="Invitations" flush>
        {query.isPending ? <Waiting label="Loading invitations" /> : query.data === undefined ? null : list.length === 0 ? (
          <Empty title="No invitations yet" action={inviteButton}>Make a link and hand it to a colleague. It is shown once.</Empty>
        ) : (
          <Table className="tabular card-table" data-testid="invitations">
            <Table.Thead><Table.Tr><Table.Th>For</Table.Th><Table.Th>Status</Table.Th><Table.Th>Role</Table.Th><Table.Th>Made by</Table.Th><Table.Th>Expires</Table.Th><Table.Td /></Table.Tr></Table.Thead>
            <Table.Tbody>
              {list.map((one) => (
                <Table.Tr key={one.id}>
                  <Table.Td className={classes.name}>{one.note || <span className={classes.soft}>no note</span>}</Table.Td>
                  <Table.Td data-label="Status"><StatusBadge status={one.status} />{one.accepted_by !== null && <div className={classes.soft}>by {one.accepted_by}</div>}</Table.Td>
                  <Table.Td data-label="Role">{one.role}<div className={classes.soft}>{one.level === "team" ? "all projects" : "this project"}</div></Table.Td>
                  <Table.Td data-label="Made by" title={moment(one.created_at)}>{one.created_by}</Table.Td>
                  <Table.Td data-label="Expires" title={moment(one.expires_at)}>{one.status === "open" || one.status === "expired" ? expiryText(one.expires_at, now) : "–"}</Table.Td>
                  <Table.Td ta="right">{one.status === "open" && <Button variant="subtle" color="red" onClick={() => show(one)}>Revoke</Button>}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        )}
        <More query={query} />
      </Panel>
      {shown === "new" && <Invite me={me} onClose={close} />}
      {shown !== null && shown !== "new" && (
        <Confirm title={`Revoke the invitation${shown.note === "" ? "" : ` for ${shown.note}`}?`} action="Revoke" changes={[invitationsQuery.queryKey]} onClose={close}
          run={() => remove("/api/v1/invitations/{invitation_id}", { path: { invitation_id: shown.id } })}>
          Its link stops working at once. Whoever has it needs another one.
        </Confirm>
      )}
    </>
  );
}

function Invite({ me, onClose }: { me: Me; onClose: () => void }) {
  const [note, setNote] = useState("");
  const [role, setRole] = useState<Role | null>("editor");
  const [level, setLevel] = useState<Level>("project");
  const [days, setDays] = useState("7");
  const client = useQueryClient();
  const invite = useMutation({
    mutationFn: () => post("/api/v1/invitations", { body: { role: role!, level, note, days: Number(days) } }),
    onSuccess: () => void client.invalidateQueries({ queryKey: invitationsQuery.queryKey }),
  });
  return (
    <Modal opened onClose={onClose} title="Invite somebody">
      {invite.data !== undefined ? (
        <ShownOnce what="link" value={invite.data.link} onDone={onClose}>Whoever opens it first joins as {invite.data.role}. It works until {moment(invite.data.expires_at)}.</ShownOnce>
      ) : (
        <form onSubmit={(event) => { event.preventDefault(); invite.mutate(); }}>
          <Stack gap="sm">
            <TextInput label="For" description="A note for the list, such as a name. Optional." maxLength={200} data-autofocus value={note} onChange={(event) => setNote(event.currentTarget.value)} error={fieldError(invite.error, "/note")} />
            {may(me, "team:admin") && (
              <Select label="Where" allowDeselect={false} value={level} onChange={(value) => setLevel(value as Level)}
                data={[{ value: "project", label: `Only ${me.project.name}` }, { value: "team", label: `All projects of ${me.team.name}` }]} />
            )}
            <RoleSelect roles={rolesToGive(me, level)} value={role} onChange={setRole} error={fieldError(invite.error, "/role", ["scope_exceeds_caller"])} />
            <Select label="Expires" allowDeselect={false} value={days} onChange={(value) => setDays(value!)} data={lifetimes([1, 7, 30], false)} error={fieldError(invite.error, "/days")} />
            <ProblemNotice error={otherError(invite.error, ["/note", "/role", "/days"], ["scope_exceeds_caller"])} />
            <Group justify="flex-end" gap={8}>
              <Button variant="default" onClick={onClose}>Cancel</Button>
              <Button type="submit" loading={invite.isPending} disabled={role === null}>Create link</Button>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}
