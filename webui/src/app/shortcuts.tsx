import { useHotkeys } from "@mantine/hooks";
import { lazy, Suspense, useLayoutEffect, useRef } from "react";
import { useNavigate } from "react-router";

import { useDialog } from "../common/use-dialog.ts";

const ShortcutsHelp = lazy(async () => ({ default: (await import("./shortcuts-help.tsx")).ShortcutsHelp }));

const PATHS: Record<string, string> = { h: "/", r: "/runs", n: "/runs/new", d: "/datasets", m: "/models", p: "/pool", t: "/tokens" };

/** Keyboard shortcuts: `g` and a letter opens a page, `/` searches, `?` lists them. Inactive in text fields. */
export function Shortcuts() {
  const navigate = useNavigate();
  const { shown, show, close } = useDialog<"help">();
  const lastG = useRef(0);
  useHotkeys([["shift+?", () => show("help")], ["/", () => document.querySelector<HTMLInputElement>("input[type=search]")?.focus()]]);
  useLayoutEffect(() => { // in a layout effect, so that shortcuts work as soon as the page is visible
    const onKeyDown = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.metaKey || event.ctrlKey || event.altKey || target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      if (event.key === "g") {
        lastG.current = event.timeStamp;
      } else if (event.timeStamp - lastG.current < 1_200 && PATHS[event.key] !== undefined) {
        lastG.current = 0;
        void navigate(PATHS[event.key]!);
      }
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, [navigate]);
  return shown !== null && <Suspense><ShortcutsHelp onClose={close} /></Suspense>;
}
