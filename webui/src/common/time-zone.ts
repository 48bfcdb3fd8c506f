/** The time zone in which times are shown: the browser's, or one that the user chose in this browser. */

const KEY = "oolong-time-zone";
/** Absent in the tests, which run without a browser. */
const storage: Storage | undefined = (globalThis as { window?: Window }).window?.localStorage;

/** The chosen zone; undefined: the browser's. */
export function chosenTimeZone(): string | undefined {
  const zone = storage?.getItem(KEY) ?? undefined;
  return zone !== undefined && isTimeZone(zone) ? zone : undefined;
}

export function chooseTimeZone(zone: string | undefined): void {
  if (zone === undefined) storage?.removeItem(KEY);
  else storage?.setItem(KEY, zone);
}

export const browserTimeZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

export function isTimeZone(zone: string): boolean {
  try {
    new Intl.DateTimeFormat("en-GB", { timeZone: zone });
    return true;
  } catch {
    return false; // RangeError: a zone that this browser does not know
  }
}

/** UTC first, then every zone that the browser knows. */
export const timeZones = (): string[] => ["UTC", ...Intl.supportedValuesOf("timeZone").filter((zone) => zone !== "UTC")];
