type Session = { bytes: number; part_bytes: number; part_count: number; received_parts: number[] };

/** Identifies a file, so that the server finds its unfinished upload. */
export const fingerprintOf = (file: Pick<File, "name" | "size" | "lastModified">): string => `${file.name.slice(0, 120)} ${file.size} ${file.lastModified}`;

/** The parts that the server lacks, in order: number and byte range of each. */
export function missingParts({ bytes, part_bytes, part_count, received_parts }: Session): { number: number; begin: number; end: number }[] {
  const received = new Set(received_parts);
  return Array.from({ length: part_count }, (_, number) => ({ number, begin: number * part_bytes, end: Math.min(bytes, (number + 1) * part_bytes) }))
    .filter((part) => !received.has(part.number));
}
