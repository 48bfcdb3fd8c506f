import { useQueries, useQuery } from "@tanstack/react-query";

import type { Budget } from "../api/schema.d.ts";
import { poolBudgets, pools } from "../api/team-queries.ts";
import { ProblemNotice } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import { budgetAmounts, ownerOf } from "./budget-text.ts";
import classes from "./usage.module.css";

const STATES = { within: "", warning: "Nearly used up", exhausted: "Used up: runs pause" } as const;

/** What is used of the month's budgets. Absent where no pool has one that the user may see. */
export function Budgets() {
  const known = useQuery(pools);
  const names = (known.data ?? []).map(({ name }) => name);
  const found = useQueries({ queries: names.map(poolBudgets) });
  const rows = names.flatMap((pool, index) => (found[index]?.data ?? []).map((budget) => ({ pool, budget })));
  const failed = [known, ...found].find(({ error }) => error !== null);
  if (failed === undefined && rows.length === 0) return null;
  return (
    <Panel title="Budgets of this month">
      <ProblemNotice error={failed?.error ?? null} retry={() => void failed?.refetch()} />
      <ul className={classes.budgets} data-testid="budgets">
        {rows.map(({ pool, budget }) => <BudgetBar key={`${pool} ${budget.team.id} ${budget.project?.id ?? ""}`} budget={budget} pool={names.length > 1 ? pool : null} />)}
      </ul>
    </Panel>
  );
}

function BudgetBar({ budget, pool }: { budget: Budget; pool: string | null }) {
  const used = Math.round(100 * budget.used_frac);
  return (
    <li>
      <div className={classes.budget}>
        <span>{ownerOf(budget)}{pool !== null && <small className={classes.soft}> in pool {pool}</small>}</span>
        <span className="tabular">{budgetAmounts(budget)}</span>
      </div>
      <div className={classes.meter} role="meter" aria-label={`Budget of ${ownerOf(budget)}`} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.min(100, used)} aria-valuetext={`${used} % used`} data-state={budget.state}>
        <i style={{ width: `${Math.min(100, used)}%` }} />
      </div>
      <small className={classes.soft}><b className="tabular">{used} % used</b>{budget.state !== "within" && <>. {STATES[budget.state]}. {budget.message}</>}</small>
    </li>
  );
}
