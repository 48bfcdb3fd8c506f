import { lazy, Suspense, useLayoutEffect, useRef } from "react";
import { useNavigate } from "react-router";

import { PAGES, START } from "./pages.ts";
import { actionOf } from "./shortcut-keys.ts";

const ShortcutsHelp = lazy(async () => ({ default: (await import("./shortcuts-help.tsx")).ShortcutsHelp }));
const Palette = lazy(async () => ({ default: (await import("../palette/palette.tsx")).Palette }));

const PATHS: Record<string, string> = Object.fromEntries([...PAGES, START].map(({ key, to }) => [key, to]));
const PAGE_KEY_MILLISECONDS = 1_200; // after `g`

export type GlobalDialog = "help" | "palette";
type Props = { shown: GlobalDialog | null; show: (which: GlobalDialog) => void; close: () => void };

/**
 * Keyboard shortcuts of every page: `g` and a letter opens a page, Ctrl-K or Cmd-K opens the palette, `/` searches, `?`
 * lists them all. Inactive in text fields and dialogs. The code of the dialogs is loaded with the first use.
 */
export function Shortcuts({ shown, show, close }: Props) {
  const navigate = useNavigate();
  const lastG = useRef(-Infinity);
  useLayoutEffect(() => { // in a layout effect, so that shortcuts work as soon as the page is visible
    const onKeyDown = (event: KeyboardEvent) => {
      const afterG = event.timeStamp - lastG.current < PAGE_KEY_MILLISECONDS;
      const action = actionOf(event, event.target as HTMLInputElement, { afterG, isOverDialog: document.querySelector("[role=dialog], [role=menu]") !== null, paths: PATHS });
      lastG.current = action === "await-page" ? event.timeStamp : -Infinity;
      if (action === null || action === "await-page") return;
      event.preventDefault();
      if (action === "search") focusSearch(() => show("palette"));
      else if (typeof action === "string") show(action);
      else void navigate(action.open);
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [navigate, show]);
  if (shown === null) return null;
  return <Suspense>{shown === "help" ? <ShortcutsHelp onClose={close} /> : <Palette onClose={close} />}</Suspense>;
}

/** Focus the search field of the page, or search everything where the page has none. */
function focusSearch(searchAll: () => void): void {
  const field = document.querySelector<HTMLInputElement>("main input[type=search]");
  if (field === null) searchAll();
  else field.focus();
}
