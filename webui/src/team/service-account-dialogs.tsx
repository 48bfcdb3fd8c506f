import { Button, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { patch, post } from "../api/http.ts";
import { serviceAccounts as accountsQuery } from "../api/team-queries.ts";
import type { Me, Role, ServiceAccount } from "../api/schema.d.ts";
import { fieldError, otherError } from "../common/field-error.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { RoleSelect } from "./role-select.tsx";
import { rolesToGive } from "./roles.ts";

export function NewServiceAccount({ me, onClose }: { me: Me; onClose: () => void }) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role | null>("editor");
  const client = useQueryClient();
  const create = useMutation({
    mutationFn: () => post("/api/v1/service-accounts", { body: { name, role: role! } }),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: accountsQuery.queryKey });
      onClose();
    },
  });
  return (
    <Modal opened onClose={onClose} title="New service account">
      <form onSubmit={(event) => { event.preventDefault(); create.mutate(); }}>
        <Stack gap="sm">
          <TextInput label="Name" description="Small letters, digits and hyphens, such as nightly" required maxLength={60} data-autofocus value={name} onChange={(event) => setName(event.currentTarget.value)} error={fieldError(create.error, "/name", ["name_taken"])} />
          <RoleSelect roles={rolesToGive(me, "project")} value={role} onChange={setRole} error={fieldError(create.error, "/role", ["scope_exceeds_caller"])} />
          <ProblemNotice error={otherError(create.error, ["/name", "/role"], ["name_taken", "scope_exceeds_caller"])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={create.isPending} disabled={name === "" || role === null}>Create</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

export function ServiceAccountRole({ me, account, onClose }: { me: Me; account: ServiceAccount; onClose: () => void }) {
  const [role, setRole] = useState<Role | null>(account.role);
  const client = useQueryClient();
  const save = useMutation({
    mutationFn: () => patch("/api/v1/service-accounts/{service_account_id}", { path: { service_account_id: account.id }, body: { role: role! } }),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: accountsQuery.queryKey });
      onClose();
    },
  });
  return (
    <Modal opened onClose={onClose} title={`Role of ${account.name}`}>
      <form onSubmit={(event) => { event.preventDefault(); save.mutate(); }}>
        <Stack gap="sm">
          <RoleSelect roles={rolesToGive(me, "project")} value={role} onChange={setRole} error={fieldError(save.error, "/role", ["scope_exceeds_caller"])} />
          <Text size="sm">Its tokens have those of their scopes that the new role grants, at once.</Text>
          <ProblemNotice error={otherError(save.error, ["/role"], ["scope_exceeds_caller"])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={save.isPending} disabled={role === account.role}>Change role</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
