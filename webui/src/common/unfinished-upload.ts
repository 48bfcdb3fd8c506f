/** Remembers the upload of this browser that is not complete, so that the page can offer to resume it after a reload. */

export type Unfinished = { session: string; filename: string; bytes: number };
type Storage = Pick<globalThis.Storage, "getItem" | "setItem" | "removeItem">;

const keyOf = (purpose: string): string => `oolong:unfinished-upload:${purpose}`;

export function remember(storage: Storage, purpose: string, upload: Unfinished): void {
  storage.setItem(keyOf(purpose), JSON.stringify(upload));
}

export function forget(storage: Storage, purpose: string): void {
  storage.removeItem(keyOf(purpose));
}

export function recall(storage: Storage, purpose: string): Unfinished | null {
  try {
    const found = JSON.parse(storage.getItem(keyOf(purpose)) ?? "null") as Partial<Unfinished> | null;
    return typeof found?.session === "string" && typeof found.filename === "string" && typeof found.bytes === "number" ? (found as Unfinished) : null;
  } catch {
    return null; // Written by something else: there is nothing to resume.
  }
}

/** Bytes of the parts that have arrived. The last part may be shorter. */
export function receivedBytes({ bytes, part_bytes, part_count, received_parts }: { bytes: number; part_bytes: number; part_count: number; received_parts: number[] }): number {
  return received_parts.reduce((sum, part) => sum + (part === part_count - 1 ? bytes - part * part_bytes : part_bytes), 0);
}
