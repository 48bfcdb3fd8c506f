/** Why this role cannot start or change runs. Null for roles that can, and while the role is unknown. */
export function readOnlyReason(role: string | null | undefined): string | null {
  return role === "viewer" ? "Your role in this project is viewer. Ask an admin for the editor role." : null;
}

/** Whether the caller has a scope. False while the caller is unknown. */
export function may(me: { scopes: readonly string[] } | undefined, scope: string): boolean {
  return me?.scopes.includes(scope) ?? false;
}

/** Why the caller cannot do what needs this scope. Null when they can. */
export function missingScopeReason(scopes: readonly string[] | undefined, scope: string): string | null {
  return scopes?.includes(scope) ? null : `Your role in this project lacks the permission ${scope}. Ask an admin for a role that has it.`;
}
