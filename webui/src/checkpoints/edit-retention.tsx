import "@mantine/core/styles/NumberInput.css";
import { Button, Checkbox, Group, NumberInput, Select, Stack, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { CHECKPOINTS, retention } from "../api/checkpoint-queries.ts";
import { post, put } from "../api/http.ts";
import type { Retention } from "../api/schema.d.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { PlanSummary } from "./plan-summary.tsx";
import { formOf, policyOf, rulesInWords, type PolicyForm } from "./retention.ts";
import classes from "./retention-panel.module.css";

const TYPING_MILLISECONDS = 400;
const KINDS = [{ value: "", label: "Every kind" }, { value: "training", label: "Training states only" }, { value: "weights", label: "Weights only" }];
const DIRECTIONS = [{ value: "max", label: "highest" }, { value: "min", label: "lowest" }];

/** Sets the policy. While it is edited, the preview shows what it would delete. Saving deletes nothing by itself. */
export function EditRetention({ policy, done }: { policy: Retention; done: () => void }) {
  const [form, setForm] = useState(() => formOf(policy));
  const set = (change: Partial<PolicyForm>) => setForm((old) => ({ ...old, ...change }));
  const edited = policyOf(form);
  const { automatic: _, ...rules } = edited;
  const [settled] = useDebouncedValue(rules, TYPING_MILLISECONDS);
  const hasRules = rulesInWords({ ...edited, automatic: false }).length > 0;
  const preview = useQuery({
    queryKey: [...CHECKPOINTS, "retention", "plan", settled],
    queryFn: () => post("/api/v1/checkpoint-retention/plan", { body: settled }),
    placeholderData: keepPreviousData,
    enabled: hasRules,
    retry: false,
  });
  const client = useQueryClient();
  const save = useMutation({
    mutationFn: () => put("/api/v1/checkpoint-retention", { body: edited }),
    onSuccess: (saved) => {
      client.setQueryData(retention.queryKey, saved);
      done();
    },
    onSettled: () => void client.invalidateQueries({ queryKey: [...CHECKPOINTS, "retention"] }),
  });
  return (
    <form onSubmit={(event) => { event.preventDefault(); save.mutate(); }}>
      <Stack gap="sm">
        <ProblemNotice error={save.error} />
        <Text size="sm">A checkpoint is kept when any rule keeps it, or when an alias, a pin or a run needs it.</Text>
        <div className={classes.row}>
          <NumberInput label="Newest of each run" placeholder="off" min={1} allowDecimal={false} value={form.keepLast} onChange={(keepLast) => set({ keepLast })} data-autofocus />
          <NumberInput label="Every so many steps" placeholder="off" min={1} allowDecimal={false} value={form.everySteps} onChange={(everySteps) => set({ everySteps })} />
        </div>
        <TextInput label="Best of each run by metric" placeholder="off; such as eval/accuracy or reward_mean" value={form.bestMetric} onChange={(event) => set({ bestMetric: event.currentTarget.value })} />
        {form.bestMetric.trim() !== "" && (
          <div className={classes.row}>
            <NumberInput label="How many of the best" min={1} allowDecimal={false} value={form.bestCount} onChange={(bestCount) => set({ bestCount })} />
            <Select label="Best is" allowDeselect={false} data={DIRECTIONS} value={form.bestMode} onChange={(value) => set({ bestMode: value === "min" ? "min" : "max" })} />
          </div>
        )}
        <div className={classes.row}>
          <NumberInput label="Younger than (days)" placeholder="off" min={1} max={36_500} allowDecimal={false} value={form.ttlDays} onChange={(ttlDays) => set({ ttlDays })} />
          <Select label="Deletes" allowDeselect={false} data={KINDS} value={form.kinds[0] ?? ""} onChange={(value) => set({ kinds: value === "training" || value === "weights" ? [value] : [] })} />
        </div>
        <Checkbox label="Apply every ten minutes" description="Otherwise it deletes only when somebody applies it." checked={form.automatic} onChange={(event) => set({ automatic: event.currentTarget.checked })} />
        <ProblemNotice error={preview.error} />
        {!hasRules ? <Text size="sm" c="dimmed">Without a rule nothing is deleted.</Text> : preview.data !== undefined && <PlanSummary plan={preview.data} listed={false} />}
        <Group justify="flex-end" gap={8}>
          <Button variant="default" onClick={done}>Cancel</Button>
          <Button type="submit" loading={save.isPending} data-testid="save-retention">{form.automatic && hasRules ? "Save and apply every ten minutes" : "Save policy"}</Button>
        </Group>
      </Stack>
    </form>
  );
}
