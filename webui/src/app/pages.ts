import { IconAdjustmentsHorizontal, IconBox, IconChartBar, IconCpu, IconDatabase, IconFunction, IconHome, IconRoute, IconShieldCog, IconStack2, IconUser, IconUsers, type Icon } from "@tabler/icons-react";

/**
 * A page of the navigation: `g` and `key` open it, and `help` is its page of the documentation. `scope`: it is absent for
 * callers without it. `inMenu`: it is in the account menu and not in the navigation.
 */
export type NavigationPage = { to: string; label: string; icon: Icon; key: string; help: string; scope?: string; inMenu?: boolean };

export const PAGES: readonly NavigationPage[] = [
  { to: "/", label: "Home", icon: IconHome, key: "h", help: "guide" },
  { to: "/runs", label: "Runs", icon: IconRoute, key: "r", help: "guide" },
  { to: "/sweeps", label: "Sweeps", icon: IconAdjustmentsHorizontal, key: "s", help: "how-to/sweep" },
  { to: "/datasets", label: "Datasets", icon: IconDatabase, key: "d", help: "how-to/dataset" },
  { to: "/models", label: "Models", icon: IconBox, key: "m", help: "how-to/base-model" },
  { to: "/checkpoints", label: "Checkpoints", icon: IconStack2, key: "c", help: "how-to/gate" },
  { to: "/functions", label: "Functions", icon: IconFunction, key: "f", help: "how-to/reward" },
  { to: "/pool", label: "Pool", icon: IconCpu, key: "p", help: "how-to/operate" },
  { to: "/usage", label: "Usage", icon: IconChartBar, key: "u", help: "how-to/teams" },
  { to: "/team", label: "Team", icon: IconUsers, key: "e", help: "how-to/teams" },
  { to: "/admin", label: "Admin", icon: IconShieldCog, key: "a", help: "how-to/operate", scope: "pool:admin" },
  { to: "/account", label: "Account", icon: IconUser, key: "t", help: "how-to/teams", inMenu: true },
];

/** The pages that exist for the caller. */
export function visiblePages(me: { scopes: readonly string[] } | undefined): NavigationPage[] {
  return PAGES.filter(({ scope }) => scope === undefined || (me?.scopes.includes(scope) ?? false));
}

/** Parts of pages that the search finds by their own name. */
const PARTS: readonly { to: string; label: string; scope: string }[] = [
  { to: "/account#tokens", label: "Tokens", scope: "tokens:read" },
  { to: "/team?tab=invitations", label: "Invitations", scope: "members:admin" },
  { to: "/team?tab=service-accounts", label: "Service accounts", scope: "members:read" },
  { to: "/team?tab=secrets", label: "Secrets", scope: "secrets:read" },
  { to: "/team?tab=webhooks", label: "Webhooks", scope: "webhooks:admin" },
  { to: "/team?tab=audit", label: "Audit log", scope: "audit:read" },
  { to: "/admin?tab=teams", label: "Teams and projects", scope: "installation:admin" },
  { to: "/admin?tab=health", label: "Health of the services", scope: "installation:admin" },
];

export const visibleParts = (me: { scopes: readonly string[] } | undefined) => PARTS.filter(({ scope }) => me?.scopes.includes(scope) ?? false);

export const START = { to: "/runs/new", label: "Start a run", key: "n" };

export const COMPARE = { to: "/runs/compare", label: "Compare runs" };

/** The page of the navigation that a path belongs to. */
export function pageOf(pathname: string): NavigationPage | undefined {
  return PAGES.find(({ to }) => (to === "/" ? pathname === to : pathname.startsWith(to)));
}
