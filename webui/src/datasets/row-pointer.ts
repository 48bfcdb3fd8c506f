/** "/rows/17/answer" is column `answer` of row 17; other pointers are not about a row. */
export function rowOf(pointer: string): { row: number | null; column: string } {
  const match = /^\/rows\/(\d+)(?:\/(.*))?$/.exec(pointer);
  if (match === null) return { row: null, column: "" };
  return { row: Number(match[1]), column: (match[2] ?? "").replaceAll("~1", "/").replaceAll("~0", "~") };
}
