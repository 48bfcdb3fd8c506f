/**
 * Spreads the redraws of many charts over animation frames, so that live data does not stall the page: each frame takes
 * redraws until the budget is spent, at least one. After a redraw, the same one rests for a while.
 */
export class RedrawQueue {
  private readonly waiting = new Set<() => void>();
  private readonly drawnAt = new WeakMap<() => void, number>();
  private isScheduled = false;
  private readonly nextFrame: (then: () => void) => void;
  private readonly now: () => number;
  private readonly budgetMilliseconds: number;
  private readonly restMilliseconds: number;

  constructor(nextFrame: (then: () => void) => void, now: () => number, { budgetMilliseconds, restMilliseconds }: { budgetMilliseconds: number; restMilliseconds: number }) {
    this.nextFrame = nextFrame;
    this.now = now;
    this.budgetMilliseconds = budgetMilliseconds;
    this.restMilliseconds = restMilliseconds;
  }

  /** Redraw in one of the next frames. A redraw that waits already keeps its place. Returns a function that withdraws it. */
  add(redraw: () => void): () => void {
    this.waiting.add(redraw);
    this.schedule();
    return () => void this.waiting.delete(redraw);
  }

  private schedule(): void {
    if (this.isScheduled || this.waiting.size === 0) return;
    this.isScheduled = true;
    this.nextFrame(() => {
      this.isScheduled = false;
      const began = this.now();
      for (const redraw of this.waiting) {
        if (began - (this.drawnAt.get(redraw) ?? -Infinity) < this.restMilliseconds) continue;
        this.waiting.delete(redraw);
        this.drawnAt.set(redraw, began);
        redraw();
        if (this.now() - began >= this.budgetMilliseconds) break;
      }
      this.schedule();
    });
  }
}
