/** The part of a log that is in the page: the text from byte `start` to byte `next`. */
export type LogWindow = { start: number; next: number; text: string };

export const MAX_CHARACTERS = 4_000_000; // of a window: some 40,000 lines

const bytesOf = (text: string) => new TextEncoder().encode(text).length;

/** The window with a part behind it. The oldest lines leave a window that grows too large. */
export function append(window: LogWindow, part: { text: string; next_offset: number }, most = MAX_CHARACTERS): LogWindow {
  const text = window.text + part.text;
  if (text.length <= most) return { ...window, next: part.next_offset, text };
  const cut = text.indexOf("\n", text.length - Math.floor(most / 2)) + 1 || text.length - Math.floor(most / 2);
  return { start: window.start + bytesOf(text.slice(0, cut)), next: part.next_offset, text: text.slice(cut) };
}

export function prepend(window: LogWindow, part: { offset: number; text: string }): LogWindow {
  return { ...window, start: part.offset, text: part.text + window.text };
}

export function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop(); // behind the last line break is no line
  return lines;
}

const LEVEL = /\b(DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|^Traceback \(most recent|^\w+(?:Error|Exception):/;
const LEVEL_CHARACTERS = 200;

export type Level = "debug" | "info" | "warning" | "error" | "";

/** The level that a line says it has, as the server's search reads it. */
export function levelOf(line: string): Level {
  const found = LEVEL.exec(line.slice(0, LEVEL_CHARACTERS));
  if (found === null) return "";
  const name = found[1];
  if (name === undefined || name === "ERROR" || name === "CRITICAL" || name === "FATAL") return "error";
  return name === "DEBUG" ? "debug" : name === "INFO" ? "info" : "warning";
}

/** The next line of an error before or behind `from`, around the end. Null without one. */
export function nextError(lines: string[], from: number, direction: 1 | -1): number | null {
  for (let step = 1; step <= lines.length; step += 1) {
    const index = (((from + direction * step) % lines.length) + lines.length) % lines.length;
    if (levelOf(lines[index]!) === "error") return index;
  }
  return null;
}
