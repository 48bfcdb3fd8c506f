import { useCallback, useLayoutEffect, useRef, useState } from "react";

/** Which dialog is open, of those that are in the page only while they are open. Closing returns the focus to where it was. */
export function useDialog<T>(): { shown: T | null; show: (which: T) => void; close: () => void } {
  const [shown, setShown] = useState<T | null>(null);
  const before = useRef<Element | null>(null);
  const show = useCallback((which: T) => {
    before.current = document.activeElement;
    setShown(which);
  }, []);
  const close = useCallback(() => setShown(null), []);
  useLayoutEffect(() => {
    if (shown !== null || !(before.current instanceof HTMLElement)) return;
    before.current.focus({ preventScroll: true });
    before.current = null;
  }, [shown]);
  return { shown, show, close };
}
