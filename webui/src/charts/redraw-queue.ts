const SMOOTH_MILLISECONDS = 20; // a frame of 50 in a second
const GAIN = 1 / 5; // of its time: what a frame of 16.7 ms, on a screen of 60 Hz, makes up for
const LONGEST_PAUSE_MILLISECONDS = 1000;

/**
 * Spreads the redraws of many charts over animation frames, so that live data does not stall the page: each frame takes
 * redraws until the budget is spent, at least one. After a redraw, the same one rests for a while. After a frame that was
 * late, redraws pause until frames without one have made up for it, so that a slow machine updates its charts less often
 * instead of stuttering.
 */
export class RedrawQueue {
  private readonly waiting = new Set<() => void>();
  private readonly drawnAt = new WeakMap<() => void, number>();
  private isScheduled = false;
  private lastFrameWithRedraws: number | null = null;
  private pausedUntil = -Infinity;
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
    if (this.isScheduled || (this.waiting.size === 0 && this.lastFrameWithRedraws === null)) return;
    this.isScheduled = true;
    this.nextFrame(() => {
      this.isScheduled = false;
      this.pauseIfLate();
      if (this.now() >= this.pausedUntil) this.redrawSome();
      this.schedule();
    });
  }

  /** What a redraw costs shows only at the next frame: the browser paints the canvas after the callback. */
  private pauseIfLate(): void {
    if (this.lastFrameWithRedraws === null) return;
    const late = this.now() - this.lastFrameWithRedraws - SMOOTH_MILLISECONDS;
    this.lastFrameWithRedraws = null;
    if (late > 0) this.pausedUntil = this.now() + Math.min(LONGEST_PAUSE_MILLISECONDS, late / GAIN);
  }

  private redrawSome(): void {
    const began = this.now();
    for (const redraw of this.waiting) {
      if (began - (this.drawnAt.get(redraw) ?? -Infinity) < this.restMilliseconds) continue;
      this.waiting.delete(redraw);
      this.drawnAt.set(redraw, began);
      this.lastFrameWithRedraws = began;
      redraw();
      if (this.now() - began >= this.budgetMilliseconds) break;
    }
  }
}
