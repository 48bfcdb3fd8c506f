import { ActionIcon, Button, Group, Menu } from "@mantine/core";
import { IconArrowRight, IconDots, IconLock, IconPlus, IconShieldCheck } from "@tabler/icons-react";
import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { Link } from "react-router";

import { checkpointGates, gateResult } from "../api/checkpoint-queries.ts";
import * as queries from "../api/queries.ts";
import type { Alias, AliasPage } from "../api/schema.d.ts";
import { ago, moment } from "../common/format.ts";
import { Empty, ProblemNotice, Waiting } from "../common/notices.tsx";
import { Panel } from "../common/panel.tsx";
import type { AliasDialog } from "./alias-dialogs.tsx";
import { evidenceText, mayMove, mayRemove, namedAliases, type NamedAlias } from "./alias-state.ts";
import classes from "./aliases-panel.module.css";
import { checkpointPath } from "./checkpoint-cells.tsx";
import { GateChecks } from "./gate-checks.tsx";

type Props = { aliases: UseQueryResult<AliasPage>; showDialog: (dialog: AliasDialog) => void };

/** Each alias, the checkpoint that it names, its protection, its promotion gate and the gate's result. */
export function AliasesPanel({ aliases, showDialog }: Props) {
  const gates = useQuery(checkpointGates);
  const scopes = useQuery(queries.me).data?.scopes ?? [];
  const maySet = scopes.includes("checkpoints:write");
  const error = aliases.error ?? gates.error;
  const named = aliases.data === undefined || gates.data === undefined ? null : namedAliases(aliases.data.data, gates.data.data);
  const add = maySet && (
    <Group gap={8}>
      {scopes.includes("checkpoints:admin") && <Button variant="default" leftSection={<IconShieldCheck size={14} />} onClick={() => showDialog({ kind: "gate", name: "" })}>Set a gate</Button>}
      <Button variant="default" leftSection={<IconPlus size={13} />} onClick={() => showDialog({ kind: "set", name: "", checkpoint: "" })}>Set an alias</Button>
    </Group>
  );
  return (
    <Panel title="Aliases" aside={named !== null && named.length > 0 && add} flush>
      <ProblemNotice error={error} retry={() => { void aliases.refetch(); void gates.refetch(); }} />
      {named === null ? (error === null ? <Waiting /> : null) : named.length === 0 ? (
        <Empty title="No aliases yet" action={add || undefined}>An alias such as prod or best names one checkpoint at a time. Runs, evaluations and exports can use it instead of an ID.</Empty>
      ) : <ul className={classes.list} data-testid="aliases">{named.map((one) => <AliasRow key={one.name} named={one} scopes={scopes} showDialog={showDialog} />)}</ul>}
    </Panel>
  );
}

function AliasRow({ named, scopes, showDialog }: { named: NamedAlias; scopes: readonly string[]; showDialog: (dialog: AliasDialog) => void }) {
  const { name, alias, gate } = named;
  const [canMove, canRemove, canGate] = [mayMove(named, { scopes }), mayRemove(named, { scopes }), scopes.includes("checkpoints:admin")];
  return (
    <li className={classes.row} data-alias={name}>
      <div className={classes.head}>
        <b>{name}</b>
        {alias?.protected === true && <span className={classes.mark} title="Only a role with checkpoints:admin can remove it or, without a gate, move it"><IconLock size={12} aria-hidden /> protected</span>}
        {gate !== null && <span className={classes.mark} title={`A checkpoint must pass before ${name} can point to it`}><IconShieldCheck size={13} aria-hidden /> gate</span>}
        {(canMove || canRemove || canGate) && (
          <Menu position="bottom-end" width={170}>
            <Menu.Target><ActionIcon className={classes.menu} variant="subtle" color="gray" aria-label={`Actions on the alias ${name}`}><IconDots size={15} /></ActionIcon></Menu.Target>
            <Menu.Dropdown>
              {canMove && <Menu.Item onClick={() => showDialog({ kind: "set", name, checkpoint: "" })}>{alias === null ? "Set" : "Move"}</Menu.Item>}
              {canGate && <Menu.Item onClick={() => showDialog({ kind: "gate", name })}>{gate === null ? "Set a gate" : "Change the gate"}</Menu.Item>}
              {canGate && gate !== null && <Menu.Item color="red" onClick={() => showDialog({ kind: "remove-gate", name })}>Remove the gate</Menu.Item>}
              {canRemove && <Menu.Item color="red" onClick={() => showDialog({ kind: "remove", name })}>Remove</Menu.Item>}
            </Menu.Dropdown>
          </Menu>
        )}
      </div>
      {alias === null ? <div className={classes.target}>points to no checkpoint yet</div> : <Target alias={alias} />}
      {gate !== null && <div className={classes.gate}>Requires {gate.assertions.map((text) => <code key={text} className="mono">{text}</code>)}</div>}
      {gate !== null && alias !== null && <Result name={name} alias={alias} />}
      {alias !== null && gate === null && alias.protected && !canMove && <div className={classes.note}>Your role cannot move it: that needs checkpoints:admin.</div>}
    </li>
  );
}

function Target({ alias }: { alias: Alias }) {
  const { checkpoint } = alias;
  return (
    <div className={classes.target}>
      <IconArrowRight size={13} aria-hidden /> <Link to={checkpointPath(checkpoint.id)}>{checkpoint.run.name}, step {checkpoint.step}</Link>
      <span title={moment(alias.updated_at)}>{alias.updated_by}, {ago(alias.updated_at)}</span>
    </div>
  );
}

/** The gate's result for the checkpoint that the alias names now, and how it came there. */
function Result({ name, alias }: { name: string; alias: Alias }) {
  const result = useQuery(gateResult(name, alias.checkpoint.id));
  const evidence = evidenceText(alias);
  return (
    <>
      <ProblemNotice error={result.error} retry={() => void result.refetch()} />
      {result.data !== undefined && <GateChecks result={result.data} />}
      {evidence !== null && !evidence.passed && <div className={classes.note} data-tone="warn">{evidence.text}</div>}
    </>
  );
}
