import "@mantine/core/styles/NumberInput.css";
import { Button, Group, Modal, NumberInput, Stack, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import type { ProjectQuota, Quota } from "../api/schema.d.ts";
import { fieldError, otherError } from "../common/field-error.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { formOf, limitError, quotaMeaning, type QuotaForm } from "./quota.ts";

type Props = { title: string; name: string; quota: Quota | ProjectQuota; withLending?: boolean; save: (form: QuotaForm) => Promise<unknown>; onClose: () => void };

/** Sets the quota of a team or project. An empty limit lifts it. */
export function QuotaDialog({ title, name, quota, withLending = false, save, onClose }: Props) {
  const [form, setForm] = useState<QuotaForm>(() => formOf(quota));
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => save(form),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ["pool"] });
      onClose();
    },
  });
  const set = (field: keyof QuotaForm) => (value: number | string) => setForm((old) => ({ ...old, [field]: value }));
  const contradiction = limitError(form);
  return (
    <Modal opened onClose={onClose} title={title}>
      <form onSubmit={(event) => { event.preventDefault(); act.mutate(); }}>
        <Stack gap="sm">
          <NumberInput label="Nominal slots" description="It can always get these. Others borrow them only while they are idle." min={0} max={1_000_000} allowDecimal={false} data-autofocus value={form.nominal} onChange={set("nominal")} error={fieldError(act.error, "/nominal_slots")} />
          <NumberInput label="Limit" description="Most slots at once, borrowed ones included. Empty: no limit." placeholder={withLending ? "no limit" : "the team's"} min={0} max={1_000_000} allowDecimal={false} value={form.limit} onChange={set("limit")} error={contradiction ?? fieldError(act.error, "/limit_slots")} />
          {withLending && <NumberInput label="Lends" description="Most of its idle nominal slots that others may borrow. Empty: all." placeholder="all" min={0} max={1_000_000} allowDecimal={false} value={form.lending} onChange={set("lending")} error={fieldError(act.error, "/lending_limit")} />}
          <Text size="sm" data-testid="quota-meaning">{quotaMeaning(name, form, withLending)} {form.limit !== "" && <Button variant="subtle" size="compact-xs" onClick={() => set("limit")("")}>Lift the limit</Button>}</Text>
          <ProblemNotice error={otherError(act.error, ["/nominal_slots", "/limit_slots", "/lending_limit"])} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={act.isPending} disabled={contradiction !== undefined}>Set quota</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
