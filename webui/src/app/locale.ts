/**
 * A browser started in the POSIX locale names a language that Intl refuses ("en-US@posix"), and the chart library
 * formats with that name as soon as it is loaded. Such a name gives place to English.
 */
try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-GB" });
}
