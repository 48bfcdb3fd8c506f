/** Why somebody of this role cannot start or change runs; null for who can, and while the role is not known yet. */
export function whyReadOnly(role: string | null | undefined): string | null {
  return role === "viewer" ? "Your role in this project is viewer: ask an admin for the role editor" : null;
}
