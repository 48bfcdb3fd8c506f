import { Problem } from "../api/problem.ts";

/** What the API says about one field of a form, or of a part of it. `codes`: errors without a pointer that are about this field. */
export function fieldError(error: unknown, pointer: string, codes: string[] = []): string | undefined {
  if (!(error instanceof Problem)) return undefined;
  const found = error.errors.find((entry) => entry.pointer === pointer || entry.pointer.startsWith(`${pointer}/`));
  if (found !== undefined) return sentence(found.message);
  return error.errors.length === 0 && codes.includes(error.code) ? sentence(error.message) : undefined;
}

/** The error without what a form already shows at its fields. Null when nothing is left. */
export function otherError(error: unknown, pointers: string[], codes: string[] = []): unknown {
  if (!(error instanceof Problem)) return error;
  if (error.errors.length === 0) return codes.includes(error.code) ? null : error;
  const isShown = (pointer: string) => pointers.some((shown) => pointer === shown || pointer.startsWith(`${shown}/`));
  return error.errors.every((entry) => isShown(entry.pointer)) ? null : error;
}

const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
