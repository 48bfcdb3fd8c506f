import { Button, Group, Modal, Select, Stack, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import type { CreatedToken } from "../api/schema.d.ts";
import { expiresAt, lifetimes, NEVER } from "../common/expiry.ts";
import { fieldError, otherError } from "../common/field-error.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { ShownOnce } from "../common/shown-once.tsx";
import { ScopePicker } from "./scope-picker.tsx";
import { readScopes } from "./scopes.ts";

export type TokenForm = { name: string; scopes: string[]; expires_at: string | null };
/** `available`: scopes of the caller, who can hand on no others. */
type Props = { title: string; available: readonly string[]; allLabel: string; create: (form: TokenForm) => Promise<CreatedToken>; onClose: () => void };

/** Creates a token and shows it once. */
export function NewToken({ title, available, allLabel, create, onClose }: Props) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState(() => readScopes(available));
  const [life, setLife] = useState("90");
  const client = useQueryClient();
  const made = useMutation({
    mutationFn: () => create({ name: name.trim(), scopes, expires_at: expiresAt(life, Date.now()) }),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ["tokens"] });
      void client.invalidateQueries({ queryKey: ["service-accounts"] });
    },
  });
  return (
    <Modal opened onClose={onClose} title={title} size="lg">
      {made.data !== undefined ? (
        <ShownOnce what="token" value={made.data.token} onDone={onClose}>Whoever has it can use its scopes. Only its hash is stored.</ShownOnce>
      ) : (
        <form onSubmit={(event) => { event.preventDefault(); made.mutate(); }}>
          <Stack gap="sm">
            <Group grow align="flex-start">
              <TextInput label="Name" description="What it is for" required maxLength={120} data-autofocus value={name} onChange={(event) => setName(event.currentTarget.value)} error={fieldError(made.error, "/name")} />
              <Select label="Expires" description={life === NEVER ? "Revoke it when it is not needed" : "It stops working then"} allowDeselect={false} value={life} onChange={(value) => setLife(value!)} data={lifetimes([7, 30, 90, 365], true)} error={fieldError(made.error, "/expires_at")} />
            </Group>
            <ScopePicker available={available} value={scopes} onChange={setScopes} allLabel={allLabel} error={fieldError(made.error, "/scopes", ["scope_exceeds_caller"])} />
            <ProblemNotice error={otherError(made.error, ["/name", "/expires_at", "/scopes"], ["scope_exceeds_caller"])} />
            <Group justify="flex-end" gap={8}>
              <Button variant="default" onClick={onClose}>Cancel</Button>
              <Button type="submit" loading={made.isPending} disabled={name.trim() === "" || scopes.length === 0}>Create token</Button>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}
