import { useEffect } from "react";

/** Sets the browser tab's title, for example "Pool · Oolong". */
export function usePageTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Oolong`;
    return () => { document.title = "Oolong"; };
  }, [title]);
}
