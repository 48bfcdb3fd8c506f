import type { Me, Member, Role } from "../api/schema.d.ts";

export const ROLES: readonly Role[] = ["viewer", "editor", "operator", "admin"];

/** What each role adds to the one before. docs/how-to/teams.md has the same table. */
export const MEANINGS: Record<Role, string> = {
  viewer: "reads everything in the project and has tokens of their own",
  editor: "also creates and changes datasets, models, functions, runs and checkpoints",
  operator: "also ends runs by force, sets priorities up to 800, protected aliases and retention",
  admin: "also manages members, invitations, service accounts, secrets and webhooks, and reads the audit log",
};

export type Level = "project" | "team";

const rank = (role: Role | null): number => (role === null ? -1 : ROLES.indexOf(role));
const higher = (one: Role | null, other: Role | null): Role | null => (rank(one) >= rank(other) ? one : other);

/** The scope that changes roles at a level. */
export const scopeOf = (level: Level): string => (level === "team" ? "team:admin" : "members:admin");

export const roleAt = (member: Member, level: Level): Role | null => (level === "team" ? member.team_role : member.project_role);

type Place = { project: string; team: string };

const placeOf = (level: Level, { project, team }: Place): string => (level === "team" ? `all projects of ${team}` : project);

/** What a new role at a level does to a member. Null removes the role there. */
export function roleEffects(member: Member, level: Level, role: Role | null, place: Place): string[] {
  const other = roleAt(member, level === "team" ? "project" : "team");
  const after = higher(role, other);
  const name = member.username;
  const effects: string[] = [];
  if (after === null) {
    effects.push(`${name} loses access to ${level === "team" ? `the projects of ${place.team} in which they have no role of their own` : place.project} at once. Open pages and streams end within seconds.`);
    effects.push(`Their tokens of ${level === "team" ? "these projects" : place.project} are revoked for good. Runs that they started continue.`);
  } else if (role === null || rank(after) < rank(member.role)) {
    effects.push(after === member.role ? `${name} stays ${after} here, because of the role in ${level === "team" ? "the project" : "the team"}.` : `${name} is ${after} here from now on, and was ${member.role}.`);
    if (after !== member.role) effects.push("Their tokens lose the scopes of the higher role at once. Runs keep going with the priority that they have.");
  } else {
    effects.push(`${name} ${MEANINGS[role]}, in ${placeOf(level, place)}.`);
    if (other !== null && rank(other) > rank(role)) effects.push(`The role in ${level === "team" ? "the project" : "the team"} is higher and counts here: ${other}.`);
  }
  if (role === null && after === null && level === "team") effects.push("Roles in single projects stay.");
  return effects;
}

/** Whether the member is the only admin at this level, who can neither leave nor be demoted. */
export function isLastAdmin(members: readonly Member[], member: Member, level: Level): boolean {
  if (roleAt(member, level) !== "admin") return false;
  const others = members.filter((one) => one.id !== member.id);
  return !others.some((one) => one.team_role === "admin" || (level === "project" && one.project_role === "admin")) && (level === "team" || member.team_role !== "admin");
}

export type MemberAction = { kind: "change" | "add" | "remove"; level: Level; label: string; reason: string };

/** What the caller can do with a member. `reason` says why an action is disabled. Empty for a member whom the caller can do nothing with. */
export function memberActions(me: Me, members: readonly Member[], member: Member): MemberAction[] {
  const isMe = member.id === me.user.id;
  return (["project", "team"] as const).flatMap((level) => {
    const role = roleAt(member, level);
    const mayManage = me.scopes.includes(scopeOf(level));
    const reason = isLastAdmin(members, member, level) ? `The last admin of the ${level}. Make somebody else one first.` : "";
    const found: MemberAction[] = [];
    if (mayManage) found.push({ kind: role === null ? "add" : "change", level, label: `${role === null ? "Give a" : "Change the"} role in the ${level}`, reason: role === null ? "" : reason });
    if (role !== null && (mayManage || isMe)) found.push({ kind: "remove", level, label: isMe ? `Leave the ${level}` : `Remove from the ${level}`, reason });
    return found;
  });
}

/** Roles that the caller can give at a level: none above their own. */
export function rolesToGive(me: Me, level: Level): Role[] {
  const own = level === "team" ? "admin" : (me.role as Role);
  return ROLES.filter((role) => rank(role) <= rank(own));
}

export const matchesName = (name: string, query: string): boolean => name.toLowerCase().includes(query.trim().toLowerCase());
