import type { FieldProblem } from "../api/problem.ts";
import { words } from "../common/format.ts";
import { pointerOf, SPEC_FIELDS } from "./spec-schema.ts";

const FIELDS = new Set(SPEC_FIELDS.map(({ path }) => pointerOf(path)));

/** The field of the form that holds what a pointer points to: its own, or that of a part of it, such as of one weight. */
export function fieldOf(pointer: string): string | null {
  for (let end = pointer.length; end > 0; end = pointer.lastIndexOf("/", end - 1)) {
    if (FIELDS.has(pointer.slice(0, end))) return pointer.slice(0, end);
  }
  return null;
}

/** "/rollout/group_size" -> "Rollout › Group size". */
export function titleOf(pointer: string): string {
  const parts = pointer.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
  return parts.length === 0 ? "The whole spec" : parts.map(words).join(" › ");
}

/** The errors by the field of the form that shows them. A field shows its first. */
export function errorsByField(errors: FieldProblem[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const { pointer, message } of errors) {
    const field = fieldOf(pointer);
    if (field !== null && !found.has(field)) found.set(field, field === pointer ? message : `${pointer.slice(field.length + 1)}: ${message}`);
  }
  return found;
}

/** "1 error", "3 errors". */
export function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}
