type Session = { bytes: number; part_bytes: number; part_count: number; received_parts: number[] };

/** By which the server finds an unfinished upload of the same file again. */
export const fingerprintOf = (file: Pick<File, "name" | "size" | "lastModified">): string => `${file.name.slice(0, 120)} ${file.size} ${file.lastModified}`;

/** What is still to be sent, in order: number and bytes of each part. */
export function missingParts({ bytes, part_bytes, part_count, received_parts }: Session): { number: number; begin: number; end: number }[] {
  const there = new Set(received_parts);
  return Array.from({ length: part_count }, (_, number) => ({ number, begin: number * part_bytes, end: Math.min(bytes, (number + 1) * part_bytes) }))
    .filter((part) => !there.has(part.number));
}
