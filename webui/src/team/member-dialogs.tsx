import { Button, Group, Modal, Select, Stack, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { patch, post, remove } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import { members as membersQuery } from "../api/team-queries.ts";
import type { Me, Member, Role } from "../api/schema.d.ts";
import { Confirm } from "../common/confirm.tsx";
import { fieldError, otherError } from "../common/field-error.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { may } from "../common/permission.ts";
import { RoleSelect } from "./role-select.tsx";
import { roleAt, roleEffects, rolesToGive, type Level } from "./roles.ts";
import classes from "./team.module.css";

type Props = { me: Me; member: Member; level: Level; onClose: () => void };

const placeOf = (me: Me) => ({ project: me.project.name, team: me.team.name });

function Effects({ effects }: { effects: string[] }) {
  return <ul className={classes.effects} data-testid="effects">{effects.map((effect) => <li key={effect}>{effect}</li>)}</ul>;
}

/** Changes the role of a member at a level, or gives one. */
export function ChangeRole({ me, member, level, onClose }: Props) {
  const before = roleAt(member, level);
  const [role, setRole] = useState<Role | null>(before);
  const client = useQueryClient();
  const save = useMutation({
    mutationFn: () => {
      const body = { role: role! };
      const path = { user_id: member.id };
      if (before === null) return post(level === "team" ? "/api/v1/team/members" : "/api/v1/members", { body: { username: member.username, ...body } });
      return level === "team" ? patch("/api/v1/team/members/{user_id}", { path, body }) : patch("/api/v1/members/{user_id}", { path, body });
    },
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: membersQuery.queryKey });
      if (member.id === me.user.id) void client.invalidateQueries({ queryKey: queries.me.queryKey });
      onClose();
    },
  });
  return (
    <Modal opened onClose={onClose} title={`Role of ${member.username} in ${level === "team" ? `the team ${me.team.name}` : me.project.name}`}>
      <form onSubmit={(event) => { event.preventDefault(); save.mutate(); }}>
        <Stack gap="sm">
          <RoleSelect roles={rolesToGive(me, level)} value={role} onChange={setRole} error={fieldError(save.error, "/role", ["last_admin", "scope_exceeds_caller"])} />
          {role !== null && role !== before && <Effects effects={roleEffects(member, level, role, placeOf(me))} />}
          <ProblemNotice error={otherError(save.error, ["/role"], ["last_admin", "scope_exceeds_caller"])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={save.isPending} disabled={role === null || role === before}>{before === null ? "Give role" : "Change role"}</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

export function RemoveMember({ me, member, level, onClose }: Props) {
  const isMe = member.id === me.user.id;
  const where = level === "team" ? `the team ${me.team.name}` : me.project.name;
  const path = { user_id: member.id };
  return (
    <Confirm
      title={isMe ? `Leave ${where}?` : `Remove ${member.username} from ${where}?`} action={isMe ? "Leave" : "Remove"} changes={[membersQuery.queryKey]} onClose={onClose}
      run={() => (level === "team" ? remove("/api/v1/team/members/{user_id}", { path }) : remove("/api/v1/members/{user_id}", { path }))}
      onDone={() => { if (isMe) window.location.assign("/"); }} // another project from now on, or the login page
    >
      <Effects effects={roleEffects(member, level, null, placeOf(me))} />
    </Confirm>
  );
}

/** Somebody who has a role in another project of the team. Anybody else is invited. */
export function AddMember({ me, onClose }: { me: Me; onClose: () => void }) {
  const [username, setUsername] = useState("");
  const [level, setLevel] = useState<Level>("project");
  const [role, setRole] = useState<Role | null>("editor");
  const client = useQueryClient();
  const add = useMutation({
    mutationFn: () => post(level === "team" ? "/api/v1/team/members" : "/api/v1/members", { body: { username: username.trim(), role: role! } }),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: membersQuery.queryKey });
      onClose();
    },
  });
  return (
    <Modal opened onClose={onClose} title="Add a member">
      <form onSubmit={(event) => { event.preventDefault(); add.mutate(); }}>
        <Stack gap="sm">
          <TextInput label="Username" description="Somebody of this team. Invite anybody else." required maxLength={120} data-autofocus value={username} onChange={(event) => setUsername(event.currentTarget.value)} error={fieldError(add.error, "/username", ["already_member"])} />
          {may(me, "team:admin") && (
            <Select label="Where" allowDeselect={false} value={level} onChange={(value) => setLevel(value as Level)}
              data={[{ value: "project", label: `Only ${me.project.name}` }, { value: "team", label: `All projects of ${me.team.name}` }]} />
          )}
          <RoleSelect roles={rolesToGive(me, level)} value={role} onChange={setRole} error={fieldError(add.error, "/role", ["scope_exceeds_caller"])} />
          <ProblemNotice error={otherError(add.error, ["/username", "/role"], ["already_member", "scope_exceeds_caller"])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={add.isPending} disabled={username.trim() === "" || role === null}>Add member</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
