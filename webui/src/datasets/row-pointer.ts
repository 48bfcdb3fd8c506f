/** "/rows/17/answer" is about column `answer`, "/upload_id" about the file as a whole; other pointers say themselves what they are about. */
export function columnOf(pointer: string): string {
  const match = /^\/rows(?:\/\d+(?:\/(.*))?)?$/.exec(pointer);
  if (match === null) return pointer === "/upload_id" ? "" : pointer;
  return (match[1] ?? "").replaceAll("~1", "/").replaceAll("~0", "~");
}
