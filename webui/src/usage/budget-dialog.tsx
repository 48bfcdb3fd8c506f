import { Button, Group, Modal, Select, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { put } from "../api/http.ts";
import * as queries from "../api/queries.ts";
import type { Budget } from "../api/schema.d.ts";
import { poolBudgets } from "../api/team-queries.ts";
import { Confirm } from "../common/confirm.tsx";
import { fieldError, otherError } from "../common/field-error.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { bodyOf, formOf, isEmpty, isUsedUp, ownedBy, ownerKey, type BudgetForm, type Owner } from "./budget-form.ts";
import { ownerOf, usedText } from "./budget-text.ts";
import type { BudgetRights } from "./use-budget-rights.ts";

const save = (pool: string, owner: Owner, body: { gpu_hours: string | null; cost: string | null }) =>
  owner.kind === "team"
    ? put("/api/v1/pools/{pool_name}/teams/{team_id}/budget", { path: { pool_name: pool, team_id: owner.id }, body })
    : put("/api/v1/pools/{pool_name}/projects/{project_id}/budget", { path: { pool_name: pool, project_id: owner.id }, body });

const FIELDS = ["/gpu_hours", "/cost"];

type SetProps = { rights: BudgetRights; currency: string; at: { pool: string; budget: Budget } | null; onClose: () => void };

/** Sets the budget of a team or project; `at`: the one that is changed, else the owner is chosen. */
export function SetBudget({ rights, currency, at, onClose }: SetProps) {
  const [pool, setPool] = useState(at?.pool ?? rights.pools.find(({ name }) => name === "default")?.name ?? rights.pools[0]?.name ?? "");
  const mayManage = rights.pools.some((one) => one.name === pool && one.may_manage);
  const teams = useQuery({ ...queries.poolTeams(pool), enabled: at === null && mayManage });
  const known = useQuery({ ...poolBudgets(pool), enabled: pool !== "" });
  const owners: Owner[] = at !== null ? [ownedBy(at.budget)] : [
    ...(mayManage ? (teams.data ?? []).map(({ team }): Owner => ({ kind: "team", ...team })) : []),
    ...rights.projects.map(({ id, name }): Owner => ({ kind: "project", id, name })),
  ];
  const [chosen, setChosen] = useState<string | null>(null);
  const owner = owners.find((one) => ownerKey(one) === chosen) ?? owners[0];
  const budget = at?.budget ?? known.data?.find((one) => owner !== undefined && ownerKey(ownedBy(one)) === ownerKey(owner));
  const [edited, setEdited] = useState<BudgetForm | null>(null); // until then what the owner has
  const form = edited ?? formOf(budget);
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: () => { if (owner === undefined) throw new Error("no owner is chosen"); return save(pool, owner, bodyOf(form)); },
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: poolBudgets(pool).queryKey });
      onClose();
    },
  });
  const choose = (change: () => void) => { change(); setEdited(null); act.reset(); };
  const field = (name: keyof BudgetForm, label: string, description: string) => (
    <TextInput label={label} description={description} placeholder="no limit" inputMode="decimal" data-autofocus={name === "hours" || undefined} value={form[name]} onChange={(event) => setEdited({ ...form, [name]: event.currentTarget.value })} error={fieldError(act.error, name === "hours" ? "/gpu_hours" : "/cost")} />
  );
  const options = (kind: Owner["kind"]) => owners.filter((one) => one.kind === kind).map((one) => ({ value: ownerKey(one), label: one.name }));
  const groups = [{ group: "Teams", items: options("team") }, { group: "Projects of your team", items: options("project") }].filter(({ items }) => items.length > 0);
  return (
    <Modal opened onClose={onClose} title={at === null ? "Set a budget" : `Budget of ${ownerOf(at.budget)} in pool ${at.pool}`}>
      <form onSubmit={(event) => { event.preventDefault(); act.mutate(); }}>
        <Stack gap="sm">
          {at === null && rights.pools.length > 1 && <Select label="Pool" data={rights.pools.map(({ name }) => name)} value={pool} allowDeselect={false} onChange={(name) => choose(() => { setPool(name ?? pool); setChosen(null); })} />}
          {at === null && <Select label="Whose" description={mayManage ? undefined : "Admins of the pool set the budgets of teams."} data={groups} value={owner === undefined ? null : ownerKey(owner)} allowDeselect={false} searchable onChange={(key) => choose(() => setChosen(key))} />}
          <ProblemNotice error={teams.error ?? known.error} retry={() => void (teams.error === null ? known : teams).refetch()} />
          {field("hours", "GPU-hours per month", "Hours of GPU slots. Empty: no limit.")}
          {field("cost", `Cost per month, ${currency}`, "Slots without a price cost nothing. Empty: no limit.")}
          <Text size="sm" data-testid="budget-meaning">
            {isEmpty(form) ? (budget === undefined ? "Enter at least one limit." : "Without a limit the budget is removed.") : isUsedUp(form, budget)
              ? <b>This is used up already: active runs save a checkpoint and pause within a minute.</b>
              : "At 80 % active runs get an event. At 100 % runs save a checkpoint and pause, playgrounds and reward tests end, and queued runs wait for the next month (UTC) or a higher budget."}
            {budget !== undefined && ` Used this month: ${usedText(budget)}.`}
          </Text>
          <ProblemNotice error={otherError(act.error, FIELDS)} />
          <Group justify="flex-end" gap={8}>
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={act.isPending} disabled={owner === undefined || (isEmpty(form) && budget === undefined)}>Set budget</Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

export function RemoveBudget({ pool, budget, onClose }: { pool: string; budget: Budget; onClose: () => void }) {
  return (
    <Confirm title={`Remove the budget of ${ownerOf(budget)}?`} action="Remove budget" changes={[poolBudgets(pool).queryKey]} onClose={onClose} run={() => save(pool, ownedBy(budget), { gpu_hours: null, cost: null })}>
      {budget.project === null ? "The team's" : "The project's"} runs in pool {pool} then have no limit per month{budget.project === null ? "; budgets of its projects stay" : " but the team's"}. Queued runs that wait for the budget can start. Runs that it paused stay paused until somebody resumes them.
    </Confirm>
  );
}
