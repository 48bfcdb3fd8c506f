import { Button, Group } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQueries, useQuery } from "@tanstack/react-query";

import type { Budget } from "../api/schema.d.ts";
import { poolBudgets, pools } from "../api/team-queries.ts";
import { Empty, ProblemNotice } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { useDialog } from "../common/use-dialog.ts";
import { RemoveBudget, SetBudget } from "./budget-dialog.tsx";
import { budgetAmounts, ownerOf } from "./budget-text.ts";
import { budgetDenied, useBudgetRights } from "./use-budget-rights.ts";
import classes from "./usage.module.css";

const STATES = { within: "", warning: "Nearly used up", exhausted: "Used up: runs pause" } as const;

type At = { pool: string; budget: Budget };
type Dialog = { kind: "set"; at: At | null } | { kind: "remove"; at: At };

/** What is used of the month's budgets. Absent where the user neither sees one nor may set one. */
export function Budgets({ currency }: { currency: string }) {
  const known = useQuery(pools);
  const names = (known.data ?? []).map(({ name }) => name);
  const found = useQueries({ queries: names.map(poolBudgets) });
  const rows = names.flatMap((pool, index) => (found[index]?.data ?? []).map((budget) => ({ pool, budget })));
  const failed = [known, ...found].find(({ error }) => error !== null);
  const rights = useBudgetRights();
  const { shown, show, close } = useDialog<Dialog>();
  const isLoaded = known.data !== undefined && found.every(({ isPending }) => !isPending);
  const maySet = rights.pools.length > 0;
  if (failed === undefined && (!isLoaded || (rows.length === 0 && !maySet))) return null;
  const denied = new Set(rows.map(({ pool, budget }) => budgetDenied(rights, pool, budget)).filter((reason) => reason !== null));
  const setButton = <Button variant="default" leftSection={<IconPlus size={14} />} onClick={() => show({ kind: "set", at: null })}>Set a budget</Button>;
  return (
    <Panel title="Budgets of this month" aside={maySet && rows.length > 0 && setButton}>
      <ProblemNotice error={failed?.error ?? null} retry={() => void failed?.refetch()} />
      {rows.length > 0 ? (
        <ul className={classes.budgets} data-testid="budgets">
          {rows.map((at) => <BudgetBar key={`${at.pool} ${at.budget.team.id} ${at.budget.project?.id ?? ""}`} at={at} isNamed={names.length > 1} mayChange={budgetDenied(rights, at.pool, at.budget) === null} show={show} />)}
        </ul>
      ) : failed === undefined && (
        <Empty title="No budgets" action={setButton}>A budget limits what a team, or one of its projects, uses of a pool in a month: in GPU-hours, money or both. When it is used up, runs save a checkpoint and pause.</Empty>
      )}
      {denied.size > 0 && <p className={classes.denied}>{[...denied].join(" ")}</p>}
      {shown?.kind === "set" && <SetBudget rights={rights} currency={shown.at?.budget.currency ?? currency} at={shown.at} onClose={close} />}
      {shown?.kind === "remove" && <RemoveBudget {...shown.at} onClose={close} />}
    </Panel>
  );
}

function BudgetBar({ at, isNamed, mayChange, show }: { at: At; isNamed: boolean; mayChange: boolean; show: (dialog: Dialog) => void }) {
  const { pool, budget } = at;
  const used = Math.round(100 * budget.used_frac);
  const owner = ownerOf(budget);
  return (
    <li>
      <div className={classes.budget}>
        <span>{owner}{isNamed && <small className={classes.soft}> in pool {pool}</small>}</span>
        <span className="tabular">{budgetAmounts(budget)}</span>
      </div>
      <div className={classes.meter} role="meter" aria-label={`Budget of ${owner}`} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.min(100, used)} aria-valuetext={`${used} % used`} data-state={budget.state}>
        <i style={{ width: `${Math.min(100, used)}%` }} />
      </div>
      <div className={classes.budget}>
        <small className={classes.soft}><b className="tabular">{used} % used</b>{budget.state !== "within" && <>. {STATES[budget.state]}. {budget.message}</>}</small>
        {mayChange && (
          <Group gap={4} wrap="nowrap">
            <Button variant="subtle" size="compact-sm" aria-label={`Change the budget of ${owner} in pool ${pool}`} onClick={() => show({ kind: "set", at })}>Change</Button>
            <Button variant="subtle" size="compact-sm" color="red" aria-label={`Remove the budget of ${owner} in pool ${pool}`} onClick={() => show({ kind: "remove", at })}>Remove</Button>
          </Group>
        )}
      </div>
    </li>
  );
}
