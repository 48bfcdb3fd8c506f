/** The value that a color of tokens.css has in the theme, because a canvas does not follow CSS variables. */
export function cssColor(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
