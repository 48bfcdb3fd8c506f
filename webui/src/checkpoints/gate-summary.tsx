import { Button, Group } from "@mantine/core";

import type { Gate } from "../api/schema.d.ts";
import type { AliasDialog } from "./alias-dialogs.tsx";
import classes from "./aliases-panel.module.css";

type Props = { name: string; gate: Gate | null; isAdmin: boolean; showDialog: (dialog: AliasDialog) => void };

/** What the alias requires of a checkpoint, shown where it is moved, and who can change that. */
export function GateSummary({ name, gate, isAdmin, showDialog }: Props) {
  const change = (kind: "gate" | "remove-gate", label: string) => (
    <Button variant="subtle" size="compact-xs" color={kind === "remove-gate" ? "red" : undefined} onClick={() => showDialog({ kind, name })}>{label}</Button>
  );
  if (gate === null) {
    if (!isAdmin) return null;
    return <Group gap={8}><span className={classes.note}>{name} has no promotion gate: any stored checkpoint can take it.</span>{change("gate", "Set a gate")}</Group>;
  }
  return (
    <div className={classes.summary} data-testid="gate-summary">
      <div className={classes.gate}>{name} requires {gate.assertions.map((text) => <code key={text} className="mono">{text}</code>)}</div>
      {isAdmin ? <Group gap={8}>{change("gate", "Change the gate")}{change("remove-gate", "Remove the gate")}</Group> : <div className={classes.note}>To change or remove this gate, a role needs checkpoints:admin.</div>}
    </div>
  );
}
