import type { Alias, Gate, GateResult } from "../api/schema.d.ts";

/** One name of the registry: where it points, and the gate in front of it. Either may be absent. */
export type NamedAlias = { name: string; alias: Alias | null; gate: Gate | null };

/** Aliases and gates by name. A gate can stand before its alias is first set. */
export function namedAliases(aliases: Alias[], gates: Gate[]): NamedAlias[] {
  const names = [...new Set([...aliases.map(({ name }) => name), ...gates.map(({ alias }) => alias)])].sort();
  return names.map((name) => ({ name, alias: aliases.find((alias) => alias.name === name) ?? null, gate: gates.find(({ alias }) => alias === name) ?? null }));
}

export type Permissions = { scopes: readonly string[] };

/** Whether the caller may set, move or remove the alias. With a gate, everybody who writes checkpoints may move it there. */
export function mayMove({ alias, gate }: Pick<NamedAlias, "alias" | "gate">, { scopes }: Permissions): boolean {
  return scopes.includes("checkpoints:admin") || (scopes.includes("checkpoints:write") && (gate !== null || alias?.protected !== true));
}

export function mayRemove({ alias, gate }: Pick<NamedAlias, "alias" | "gate">, { scopes }: Permissions): boolean {
  return alias !== null && (scopes.includes("checkpoints:admin") || (scopes.includes("checkpoints:write") && gate === null && !alias.protected));
}

/** How the alias came to where it points: null without a gate at that time. */
export function evidenceText(alias: Alias): { passed: boolean; text: string } | null {
  if (alias.evidence === null) return null;
  if (alias.evidence["passed"] === true) return { passed: true, text: "It passed its gate when it was moved here." };
  const refusal = typeof alias.evidence["refusal"] === "string" ? alias.evidence["refusal"] : "its gate had not passed";
  return { passed: false, text: `${alias.updated_by} overrode its gate: ${refusal}` };
}

const RESULTS: Record<GateResult["status"], { label: string; tone: "good" | "bad" | "warn" | "info" }> = {
  passed: { label: "Gate passed", tone: "good" },
  failed: { label: "Gate failed", tone: "bad" },
  missing: { label: "Not evaluated yet", tone: "warn" },
  pending: { label: "Evaluation runs", tone: "info" },
};

export function resultLabel(status: GateResult["status"]) {
  return RESULTS[status];
}

/** What keeps the alias from moving, and who can do what about it. Null: nothing does. */
export function refusalText(status: GateResult["status"], scopes: readonly string[]): string | null {
  if (status === "passed") return null;
  const next = {
    missing: "Run the gate's evaluation on this checkpoint first.",
    pending: "Wait until the evaluation has ended.",
    failed: "Choose another checkpoint, or evaluate this one again.",
  }[status];
  const override = scopes.includes("checkpoints:admin") ? "Your role may override the gate; the audit log records it." : "A role with checkpoints:admin (operator or admin) can override the gate.";
  return `${next} ${override}`;
}
