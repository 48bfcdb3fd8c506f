/**
 * Replace a language that Intl rejects with English. A browser started in the POSIX locale reports "en-US@posix", and
 * the chart library formats with the browser's language as soon as it is loaded.
 */
try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en-GB" });
}
