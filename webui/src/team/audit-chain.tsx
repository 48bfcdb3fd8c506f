import { IconCircleCheck, IconCircleX } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";

import { auditChain } from "../api/team-queries.ts";
import { CopyId } from "../common/copy-id.tsx";
import { grouped } from "../common/format.ts";
import { ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import classes from "./team.module.css";

/** Whether the newest links of the chain hold, and its head. */
export function AuditChainPanel() {
  const { data: chain, error, isPending, refetch } = useQuery(auditChain);
  if (isPending) return <Waiting label="Verifying the chain" />;
  if (chain === undefined) return <ProblemNotice error={error} retry={() => void refetch()} />;
  const holds = chain.broken === "";
  const all = chain.checked === chain.number;
  return (
    <Panel title="Chain" aside={<a href="/docs/how-to/security" target="_blank" rel="noreferrer">What it proves</a>}>
      <div className={classes.stack} style={{ gap: 4 }} data-testid="chain" data-holds={holds}>
        <span style={{ display: "flex", gap: 8, alignItems: "center", color: holds ? "var(--good)" : "var(--bad)" }}>
          {holds ? <IconCircleCheck size={17} aria-hidden /> : <IconCircleX size={17} aria-hidden />}
          <strong>{chain.number === 0 ? "No entry is in the chain yet" : holds ? `${all ? "All" : "The newest"} ${grouped(chain.checked)} entries hold` : "The audit log was changed"}</strong>
        </span>
        {!holds && <span>{chain.broken}. Compare with an export or a backup.</span>}
        <span className={classes.soft}>
          {chain.number > 0 && <>Head: number {grouped(chain.number)}, <CopyId id={chain.sha256} label={`${chain.sha256.slice(0, 16)}…`} />. Note it elsewhere: a cut at the end shows against it. </>}
          {chain.unsealed > 0 && `${grouped(chain.unsealed)} newer ${chain.unsealed === 1 ? "entry joins" : "entries join"} within seconds. `}
          {!all && <>To verify whole chains: <code className="mono">python3 manage.py audit verify</code></>}
        </span>
      </div>
    </Panel>
  );
}
