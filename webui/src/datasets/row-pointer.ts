/** The column that a JSON pointer refers to: "/rows/17/answer" is column `answer`, "/upload_id" the whole file (""). Other pointers are returned as they are. */
export function columnOf(pointer: string): string {
  const match = /^\/rows(?:\/\d+(?:\/(.*))?)?$/.exec(pointer);
  if (match === null) return pointer === "/upload_id" ? "" : pointer;
  return (match[1] ?? "").replaceAll("~1", "/").replaceAll("~0", "~");
}
