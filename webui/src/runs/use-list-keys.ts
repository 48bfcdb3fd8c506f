import { useLayoutEffect, useRef } from "react";

export type ListKeys = { move: (key: "j" | "k") => void; toggle: () => void; clear: () => void };

/** Whether a key belongs to what has the focus or to the browser, and not to the page. */
export function isTyping(event: Pick<KeyboardEvent, "metaKey" | "ctrlKey" | "altKey">, target: { isContentEditable?: boolean; tagName?: string; type?: string } | null): boolean {
  if (event.metaKey || event.ctrlKey || event.altKey || target?.isContentEditable) return true;
  return /^(TEXTAREA|SELECT)$/.test(target?.tagName ?? "") || (target?.tagName === "INPUT" && target.type !== "checkbox");
}

/** `j` and `k` move through a list, `x` selects, Escape clears. Inactive in text fields and dialogs, and after `g`. */
export function useListKeys(keys: ListKeys): void {
  const newest = useRef(keys);
  newest.current = keys;
  const lastG = useRef(-Infinity);
  useLayoutEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (isTyping(event, event.target as HTMLInputElement) || document.querySelector("[role=dialog], [role=menu]") !== null) return;
      const afterG = event.timeStamp - lastG.current < 1_200; // `g` and a letter open a page
      lastG.current = event.key === "g" ? event.timeStamp : -Infinity;
      if (afterG) return;
      if (event.key === "j" || event.key === "k") newest.current.move(event.key);
      else if (event.key === "x") newest.current.toggle();
      else if (event.key === "Escape") newest.current.clear();
    };
    // While capturing, so that the Escape that closes a dialog still finds it here and does not clear the selection too.
    window.addEventListener("keydown", onKeyDown, { capture: true });
    return () => window.removeEventListener("keydown", onKeyDown, { capture: true });
  }, []);
}
