const DAY = 86_400_000;
const HOUR = 3_600_000;

export const NEVER = "never";

/** Choices of a lifetime in days, as a select has them. */
export function lifetimes(days: number[], withNever: boolean): { value: string; label: string }[] {
  const choices = days.map((count) => ({ value: String(count), label: `in ${count} day${count === 1 ? "" : "s"}` }));
  return withNever ? [...choices, { value: NEVER, label: "never" }] : choices;
}

/** The time that a choice of `lifetimes` means. */
export function expiresAt(choice: string, now: number): string | null {
  return choice === NEVER ? null : new Date(now + Number(choice) * DAY).toISOString();
}

/** "in 6 d", "in 2 h", "expired", or "never". */
export function expiryText(at: string | null, now: number): string {
  if (at === null) return "never";
  const left = Date.parse(at) - now;
  if (left <= 0) return "expired";
  if (left < HOUR) return `in ${Math.max(1, Math.round(left / 60_000))} min`;
  return left < 2 * DAY ? `in ${Math.round(left / HOUR)} h` : `in ${Math.round(left / DAY)} d`;
}

/** Whether it ends within two weeks, or has ended. */
export const endsSoon = (at: string | null, now: number): boolean => at !== null && Date.parse(at) - now < 14 * DAY;
