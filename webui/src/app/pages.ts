import { IconBox, IconCpu, IconDatabase, IconHome, IconKey, IconRoute, type Icon } from "@tabler/icons-react";

/** A page of the navigation: `g` and `key` open it, and `help` is its page of the documentation. */
export type NavigationPage = { to: string; label: string; icon: Icon; key: string; help: string };

export const PAGES: readonly NavigationPage[] = [
  { to: "/", label: "Home", icon: IconHome, key: "h", help: "guide" },
  { to: "/runs", label: "Runs", icon: IconRoute, key: "r", help: "guide" },
  { to: "/datasets", label: "Datasets", icon: IconDatabase, key: "d", help: "how-to/dataset" },
  { to: "/models", label: "Models", icon: IconBox, key: "m", help: "how-to/base-model" },
  { to: "/pool", label: "Pool", icon: IconCpu, key: "p", help: "how-to/operate" },
  { to: "/tokens", label: "Tokens", icon: IconKey, key: "t", help: "how-to/security" },
];

export const START = { to: "/runs/new", label: "Start a run", key: "n" };

export const COMPARE = { to: "/runs/compare", label: "Compare runs" };

/** The page of the navigation that a path belongs to. */
export function pageOf(pathname: string): NavigationPage | undefined {
  return PAGES.find(({ to }) => (to === "/" ? pathname === to : pathname.startsWith(to)));
}
