import type { Points } from "./series.ts";

/** The index of the point nearest to `x`, at most `within` away. Null where the line has none there. */
export function nearest({ x: xs }: Pick<Points, "x">, x: number, within: number): number | null {
  let [low, high] = [0, xs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle]! < x) low = middle + 1;
    else high = middle;
  }
  const candidates = [low - 1, low].filter((index) => index >= 0 && index < xs.length);
  const distance = (index: number) => Math.abs(xs[index]! - x);
  const best = candidates.sort((a, b) => distance(a) - distance(b))[0];
  return best === undefined || distance(best) > within ? null : best;
}
