import { isTyping } from "../runs/use-list-keys.ts";

export type Action = { open: string } | "search" | "palette" | "help" | "await-page" | null;

type Key = Pick<KeyboardEvent, "key" | "metaKey" | "ctrlKey" | "altKey" | "shiftKey">;
type Target = Parameters<typeof isTyping>[1];
/** `afterG`: the key before was `g`, a moment ago. `isOverDialog`: a dialog or menu is open. `paths`: pages by their key. */
type Context = { afterG: boolean; isOverDialog: boolean; paths: Readonly<Record<string, string>> };

/** What a key does on every page. Nothing while somebody types in a field, and nothing behind a dialog. */
export function actionOf(event: Key, target: Target, { afterG, isOverDialog, paths }: Context): Action {
  if (isOverDialog || isTyping({ metaKey: false, ctrlKey: false, altKey: false }, target)) return null;
  if (event.key.toLowerCase() === "k" && (event.metaKey || event.ctrlKey) && !event.altKey && !event.shiftKey) return "palette";
  if (isTyping(event, target)) return null;
  const path = paths[event.key];
  if (afterG && path !== undefined) return { open: path };
  if (event.key === "g") return "await-page";
  if (event.key === "/") return "search";
  return event.key === "?" ? "help" : null;
}

/** The name of the modifier of the palette's shortcut on this machine. */
export function commandKey(platform: string): string {
  return /mac|iphone|ipad/i.test(platform) ? "⌘" : "Ctrl";
}
